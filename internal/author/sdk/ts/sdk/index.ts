// What `@kici-dev/sdk` exports.

export { workflow, job, step, parallel, dynamicJob } from './core';
export { dynamicGroup } from './needs';
export {
  pr, push, tag, comment, review, reviewComment, release, dispatch, create, delete, status, workflowRun, fork, star,
  watch, webhook, kiciEvent, workflowComplete, jobComplete, genericWebhook, schedule, lifecycle,
} from './triggers';
export { rule, skip, onlyOnFirstHost, onlyOnLastHost, onlyOnFanoutIndex, isEventType } from './rules';
export { defineEvent, defineDispatchInputs, fixture } from './events';
export {
  waitFor, waitForStep, waitForHostAlive, restartHost, WaitForTimeoutError, idempotent, idempotentStep, checkStep,
} from './checks';
export { expandMatrix, applyIncludeExclude } from './matrix';
export { validateDag } from './graph';
export { normalizeApproval } from './normalize';
export { SecretNotFoundError } from './runtime';
export { z } from './zod';
