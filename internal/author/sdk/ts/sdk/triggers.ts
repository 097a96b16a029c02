// Trigger factories. Each keeps its options as written; the compiler turns them into entries of the lock file.

import { mark } from './site';

/** A trigger as the compiler reads it. */
export interface Trigger {
  _tag: 'Trigger';
  kind: string;
  options: any;
}

// trigger makes the factory of one kind.
const trigger = (kind: string) => (options: any = {}): Trigger => mark({ _tag: 'Trigger', kind, options });

const pull = /* @__PURE__ */ trigger('pr');
const pushed = /* @__PURE__ */ trigger('push');
const tagged = /* @__PURE__ */ trigger('tag');
const commented = /* @__PURE__ */ trigger('comment');
const reviewed = /* @__PURE__ */ trigger('review');
const reviewCommented = /* @__PURE__ */ trigger('review_comment');
const releasedTrigger = /* @__PURE__ */ trigger('release');
const dispatched = /* @__PURE__ */ trigger('dispatch');
const refCreated = /* @__PURE__ */ trigger('create');
const refDeleted = /* @__PURE__ */ trigger('delete');
const statusTrigger = /* @__PURE__ */ trigger('status');
const workflowRunTrigger = /* @__PURE__ */ trigger('workflow_run');
const forkTrigger = /* @__PURE__ */ trigger('fork');
const starTrigger = /* @__PURE__ */ trigger('star');
const watchTrigger = /* @__PURE__ */ trigger('watch');
const webhookTrigger = /* @__PURE__ */ trigger('webhook');
const kiciEventTrigger = /* @__PURE__ */ trigger('kici_event');
const workflowCompleteTrigger = /* @__PURE__ */ trigger('workflow_complete');
const jobCompleteTrigger = /* @__PURE__ */ trigger('job_complete');
const genericTrigger = /* @__PURE__ */ trigger('generic_webhook');
const scheduleTrigger = /* @__PURE__ */ trigger('schedule');
const lifecycleTrigger = /* @__PURE__ */ trigger('lifecycle');

// positional lets a factory take its main option alone: `tag('v*')` is `tag({ patterns: 'v*' })`.
const positional = (make: (o: any) => Trigger, key: string) => (options?: any): Trigger =>
  make(typeof options === 'string' || Array.isArray(options) || options instanceof RegExp ? { [key]: options } : options);

const tagFactory = /* @__PURE__ */ positional(tagged, 'patterns');
const pushFactory = /* @__PURE__ */ positional(pushed, 'branches');
const eventFactory = /* @__PURE__ */ positional(kiciEventTrigger, 'name');
const scheduleFactory = /* @__PURE__ */ positional(scheduleTrigger, 'cron');
const genericFactory = /* @__PURE__ */ positional(genericTrigger, 'source');
const webhookFactory = /* @__PURE__ */ positional(webhookTrigger, 'events');
const lifecycleFactory = /* @__PURE__ */ positional(lifecycleTrigger, 'events');

export {
  pull as pr, pushFactory as push, tagFactory as tag, commented as comment, reviewed as review,
  reviewCommented as reviewComment, releasedTrigger as release, dispatched as dispatch, refCreated as create,
  refDeleted as delete, statusTrigger as status, workflowRunTrigger as workflowRun, forkTrigger as fork,
  starTrigger as star, watchTrigger as watch, webhookFactory as webhook, eventFactory as kiciEvent,
  workflowCompleteTrigger as workflowComplete, jobCompleteTrigger as jobComplete, genericFactory as genericWebhook,
  scheduleFactory as schedule, lifecycleFactory as lifecycle,
};
