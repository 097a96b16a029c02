// Trigger factories. Each keeps its options as written; the compiler turns them into entries of the lock file.

import { blamed, mark } from './site';

/** A trigger as the compiler reads it. */
export interface Trigger {
  _tag: 'Trigger';
  kind: string;
  options: any;
}

/**
 * Makes the factory of one kind. Its main option may stand alone: `tag('v*')` is `tag({ patterns: 'v*' })`, and
 * `schedule('0 3 * * *', { timezone })` takes the others beside it.
 */
const trigger = (kind: string, main?: string) => (first: any = {}, more: any = {}): Trigger => {
  const alone = main !== undefined && isMain(first);
  const trigger: Trigger = mark({ _tag: 'Trigger', kind, options: alone ? { ...more, [main]: first } : first });
  if (alone) return blamed(trigger, more?.[main] === undefined ? undefined : `${main} is given twice, alone and among the options`);
  return blamed(trigger, Object.keys(more ?? {}).length > 0 ? 'its options are given twice' : undefined);
};

// Options are a plain map; whatever else comes first is the main one.
const isMain = (value: any): boolean => typeof value !== 'object' || Array.isArray(value) || value instanceof RegExp || value?._tag !== undefined;

const pull = /* @__PURE__ */ trigger('pr', 'events');
const pushed = /* @__PURE__ */ trigger('push', 'branches');
const tagged = /* @__PURE__ */ trigger('tag', 'patterns');
const commented = /* @__PURE__ */ trigger('comment', 'actions');
const reviewed = /* @__PURE__ */ trigger('review', 'actions');
const reviewCommented = /* @__PURE__ */ trigger('review_comment', 'actions');
const releasedTrigger = /* @__PURE__ */ trigger('release', 'actions');
const dispatched = /* @__PURE__ */ trigger('dispatch', 'types');
const refCreated = /* @__PURE__ */ trigger('create', 'refTypes');
const refDeleted = /* @__PURE__ */ trigger('delete', 'refTypes');
const statusTrigger = /* @__PURE__ */ trigger('status', 'contexts');
const workflowRunTrigger = /* @__PURE__ */ trigger('workflow_run', 'actions');
const forkTrigger = /* @__PURE__ */ trigger('fork');
const starTrigger = /* @__PURE__ */ trigger('star', 'actions');
const watchTrigger = /* @__PURE__ */ trigger('watch', 'actions');
const webhookTrigger = /* @__PURE__ */ trigger('webhook', 'events');
const kiciEventTrigger = /* @__PURE__ */ trigger('kici_event', 'name');
const workflowCompleteTrigger = /* @__PURE__ */ trigger('workflow_complete', 'name');
const jobCompleteTrigger = /* @__PURE__ */ trigger('job_complete', 'workflow');
const genericTrigger = /* @__PURE__ */ trigger('generic_webhook', 'source');
const scheduleTrigger = /* @__PURE__ */ trigger('schedule', 'cron');
const lifecycleTrigger = /* @__PURE__ */ trigger('lifecycle', 'events');

export {
  pull as pr, pushed as push, tagged as tag, commented as comment, reviewed as review, reviewCommented as reviewComment,
  releasedTrigger as release, dispatched as dispatch, refCreated as create, refDeleted as delete, statusTrigger as status,
  workflowRunTrigger as workflowRun, forkTrigger as fork, starTrigger as star, watchTrigger as watch,
  webhookTrigger as webhook, kiciEventTrigger as kiciEvent, workflowCompleteTrigger as workflowComplete,
  jobCompleteTrigger as jobComplete, genericTrigger as genericWebhook, scheduleTrigger as schedule,
  lifecycleTrigger as lifecycle,
};
