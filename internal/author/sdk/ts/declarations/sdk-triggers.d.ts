// The types of `@kici-dev/sdk`, third part: triggers, events, inputs and fixtures.

declare module '@kici-dev/sdk' {
  // ---------------------------------------------------------------- triggers

  export interface Trigger {
    readonly _tag: 'Trigger';
    /** The kind, as lock files name it. */
    readonly kind: string;
  }

  export interface Described {
    /** Shown to people. */
    description?: string;
  }
  export interface GitTrigger extends Described {
    /** Repositories whose events count, when not only this one's. Makes the workflow a global one. */
    repos?: OneOrMany<Pattern>;
  }

  export type PullRequestEvent =
    | 'opened' | 'synchronize' | 'reopened' | 'closed' | 'assigned' | 'unassigned' | 'labeled' | 'unlabeled' | 'edited'
    | 'converted_to_draft' | 'ready_for_review' | 'locked' | 'unlocked' | 'review_requested' | 'review_request_removed'
    | 'auto_merge_enabled' | 'auto_merge_disabled';

  /** Pull requests (merge requests). The events may stand alone: `pr('opened', { target: 'main' })`. */
  export function pr(options?: PullRequestTrigger): Trigger;
  export function pr(events: OneOrMany<PullRequestEvent>, options?: Omit<PullRequestTrigger, 'events'>): Trigger;
  export interface PullRequestTrigger extends GitTrigger {
    /** Default opened, synchronize, reopened, closed. */
    events?: OneOrMany<PullRequestEvent>;
    /** Branches to merge into. */
    target?: OneOrMany<Pattern>;
    /** Branches to merge from. */
    source?: OneOrMany<Pattern>;
    /** Globs of changed paths; a leading `!` leaves out. */
    paths?: OneOrMany<string>;
  }
  /** Pushes to branches. With `tags` also pushes of tags. The branches may stand alone: `push('main')`. */
  export function push(options?: PushTrigger): Trigger;
  export function push(branches: OneOrMany<Pattern>, options?: Omit<PushTrigger, 'branches'>): Trigger;
  export interface PushTrigger extends GitTrigger {
    /** Without them every branch. */
    branches?: OneOrMany<Pattern>;
    /** Tags, in addition to the branches: with tags alone every push to a branch counts, too; `tag()` is for tags alone. */
    tags?: OneOrMany<Pattern>;
    /** Globs of changed paths; a leading `!` leaves out. */
    paths?: OneOrMany<string>;
  }
  /** Pushes of tags: `tag('v*')`. */
  export function tag(options?: TagTrigger): Trigger;
  export function tag(patterns: OneOrMany<Pattern>, options?: Omit<TagTrigger, 'patterns'>): Trigger;
  export interface TagTrigger extends GitTrigger {
    /** Names of tags. */
    patterns?: OneOrMany<Pattern>;
  }
  /** What happened to a comment. */
  export type CommentAction = 'created' | 'edited' | 'deleted';
  /** Comments on issues and pull requests. */
  export function comment(options?: CommentTrigger): Trigger;
  export function comment(actions: OneOrMany<CommentAction>, options?: Omit<CommentTrigger, 'actions'>): Trigger;
  export interface CommentTrigger extends GitTrigger {
    /** Without them all. */
    actions?: OneOrMany<CommentAction>;
    /** Only comments on issues, or on pull requests. */
    source?: 'issue' | 'pr';
    /** What the comment says: a glob of all of it (text) or a regular expression of a part. */
    bodyMatch?: Pattern;
  }
  export type ReviewAction = 'submitted' | 'edited' | 'dismissed';
  /** Reviews of pull requests. */
  export function review(options?: ReviewTrigger): Trigger;
  export function review(actions: OneOrMany<ReviewAction>, options?: Omit<ReviewTrigger, 'actions'>): Trigger;
  export interface ReviewTrigger extends GitTrigger {
    /** Without them all. */
    actions?: OneOrMany<ReviewAction>;
    /** What the reviewer decided. */
    states?: OneOrMany<'approved' | 'changes_requested' | 'commented' | 'dismissed'>;
  }
  /** Triggers that ask for an action alone. */
  export interface ActionTrigger<A extends string> extends GitTrigger {
    /** Without them all. */
    actions?: OneOrMany<A>;
  }
  /** Comments on lines of a pull request. */
  export function reviewComment(options?: ActionTrigger<CommentAction>): Trigger;
  export function reviewComment(actions: OneOrMany<CommentAction>, options?: GitTrigger): Trigger;
  export type ReleaseAction = 'published' | 'unpublished' | 'created' | 'edited' | 'deleted' | 'prereleased' | 'released';
  /** Releases. */
  export function release(options?: ActionTrigger<ReleaseAction>): Trigger;
  export function release(actions: OneOrMany<ReleaseAction>, options?: GitTrigger): Trigger;
  /** Started from outside, with typed inputs. */
  export function dispatch(options?: DispatchTrigger): Trigger;
  export function dispatch(types: OneOrMany<string>, options?: Omit<DispatchTrigger, 'types'>): Trigger;
  export interface DispatchTrigger extends GitTrigger {
    /** The caller's own names of events. Without them all. */
    types?: OneOrMany<string>;
    /** What the caller may give. Schemas may be text, number, integer, boolean, enum and literal. */
    inputs?: DispatchInputs<any> | Record<string, Schema<any>>;
  }
  export interface RefTrigger extends GitTrigger {
    /** Only branches, or only tags. */
    refTypes?: OneOrMany<'branch' | 'tag'>;
    /** Names of branches or tags. */
    patterns?: OneOrMany<Pattern>;
  }
  /** A branch or tag was made. */
  export function create(options?: RefTrigger): Trigger;
  export function create(refTypes: OneOrMany<'branch' | 'tag'>, options?: Omit<RefTrigger, 'refTypes'>): Trigger;
  function deleteTrigger(options?: RefTrigger): Trigger;
  function deleteTrigger(refTypes: OneOrMany<'branch' | 'tag'>, options?: Omit<RefTrigger, 'refTypes'>): Trigger;
  /** A branch or tag was taken away. */
  export { deleteTrigger as delete };
  /** Commit statuses. */
  export function status(options?: StatusTrigger): Trigger;
  export function status(contexts: OneOrMany<string>, options?: Omit<StatusTrigger, 'contexts'>): Trigger;
  export interface StatusTrigger extends GitTrigger {
    /** Globs of the names of statuses, such as `ci/*`. */
    contexts?: OneOrMany<string>;
    /** Without them all. */
    states?: OneOrMany<'error' | 'failure' | 'pending' | 'success'>;
  }
  export type WorkflowRunAction = 'requested' | 'completed' | 'in_progress';
  /** Runs of the forge's own CI. */
  export function workflowRun(options?: WorkflowRunTrigger): Trigger;
  export function workflowRun(actions: OneOrMany<WorkflowRunAction>, options?: Omit<WorkflowRunTrigger, 'actions'>): Trigger;
  export interface WorkflowRunTrigger extends GitTrigger {
    /** Without them all. */
    actions?: OneOrMany<WorkflowRunAction>;
    /** Names of the forge's workflows. */
    workflows?: OneOrMany<string>;
    /** How they ended, such as `success`. */
    conclusions?: OneOrMany<string>;
  }
  /** The repository was forked. */
  export function fork(options?: GitTrigger): Trigger;
  /** Somebody gave the repository a star, or took it back. */
  export function star(options?: ActionTrigger<'created' | 'deleted'>): Trigger;
  export function star(actions: OneOrMany<'created' | 'deleted'>, options?: GitTrigger): Trigger;
  /** Somebody watches the repository. */
  export function watch(options?: ActionTrigger<'started'>): Trigger;
  export function watch(actions: OneOrMany<'started'>, options?: GitTrigger): Trigger;
  /** Events of the forge by their names. */
  export function webhook(options: WebhookTrigger): Trigger;
  export function webhook(events: OneOrMany<string>, options?: Omit<WebhookTrigger, 'events'>): Trigger;
  export interface WebhookTrigger extends GitTrigger {
    /** Names of events, at least one. */
    events: OneOrMany<string>;
    /** Without them all. */
    actions?: OneOrMany<string>;
  }

  /** Values at paths of a payload, such as `{ 'alert.severity': 'high' }`; a list means any of them, text such as `/^hi/i` is
   * an expression, too. */
  export type PathMap = Record<string, OneOrMany<string | number | boolean | null | RegExp>>;

  /** Events sent with `ctx.emit`: `kiciEvent('shipped')`. */
  export function kiciEvent(options: KiciEventTrigger): Trigger;
  export function kiciEvent(name: string | EventDefinition<any>, options?: Omit<KiciEventTrigger, 'name'>): Trigger;
  export interface KiciEventTrigger extends Described {
    /** The name of the event, or what defineEvent gave. */
    name: string | EventDefinition<any>;
    /** Every path must have its value. */
    match?: PathMap;
    /** No path may have its value. */
    not?: PathMap;
    /** The repository that sends it. */
    source?: string;
  }
  /** A run of a workflow has ended. */
  export function workflowComplete(options?: WorkflowCompleteTrigger): Trigger;
  export function workflowComplete(name: string, options?: Omit<WorkflowCompleteTrigger, 'name'>): Trigger;
  export interface WorkflowCompleteTrigger extends Described {
    /** The workflow. Without it any. */
    name?: string;
    /** How it ended. */
    status?: OneOrMany<'success' | 'failed' | 'cancelled'>;
    /** The repository of the workflow. */
    source?: string;
  }
  /** A job has ended. */
  export function jobComplete(options?: JobCompleteTrigger): Trigger;
  export function jobComplete(workflow: string, options?: Omit<JobCompleteTrigger, 'workflow'>): Trigger;
  export interface JobCompleteTrigger extends Described {
    /** Without it any. */
    workflow?: string;
    /** Without it any. */
    job?: string | Job;
    /** How it ended. */
    status?: OneOrMany<'success' | 'failed' | 'cancelled' | 'skipped'>;
    /** The repository of the workflow. */
    source?: string;
  }
  /** Requests to a source that is configured on the server: `genericWebhook('alerts')`. */
  export function genericWebhook(options: GenericWebhookTrigger): Trigger;
  export function genericWebhook(source: string, options?: Omit<GenericWebhookTrigger, 'source'>): Trigger;
  export interface GenericWebhookTrigger extends Described {
    /** The name of the source. */
    source: string;
    /** Names of events, where the source tells them. */
    events?: OneOrMany<string>;
    /** Every path must have its value. */
    match?: PathMap;
    /** No path may have its value. */
    not?: PathMap;
    /** For people: where requests come in. The server goes by its own configuration. */
    path?: string;
    /** For people: how requests are verified. The server goes by its own configuration. */
    auth?: { method: 'hmac-sha256' | 'api-key'; secret: string; signatureHeader?: string; header?: string };
  }
  /** At times: five cron fields, `schedule('0 3 * * *')`. */
  export function schedule(options: ScheduleTrigger): Trigger;
  export function schedule(cron: string, options?: Omit<ScheduleTrigger, 'cron'>): Trigger;
  export interface ScheduleTrigger extends Described {
    /** Minute, hour, day of the month, month, day of the week. */
    cron: string;
    /** Such as `Europe/Paris`. Default UTC. */
    timezone?: string;
    /** Each needs a default or is optional: nobody is there to give it. */
    inputs?: DispatchInputs<any> | Record<string, Schema<any>>;
  }
  export type LifecycleEvent = 'workflow_complete' | 'job_complete' | 'job_failed' | 'registration_updated';
  /** What happens on the server itself. */
  export function lifecycle(options: LifecycleTrigger): Trigger;
  export function lifecycle(events: OneOrMany<LifecycleEvent>, options?: Omit<LifecycleTrigger, 'events'>): Trigger;
  export interface LifecycleTrigger extends Described {
    /** At least one. */
    events: OneOrMany<LifecycleEvent>;
    /** Repositories. Without them all. */
    sources?: OneOrMany<string>;
  }

  // ---------------------------------------------------------------- events and inputs of your own

  export interface EventDefinition<T> {
    readonly _tag: 'EventDefinition';
    /** The name of the event. */
    readonly name: string;
    /** What its payload must be. */
    readonly schema: Schema<T>;
  }
  /** An event of your own, whose payload is checked when it is sent. */
  export function defineEvent<T>(name: string, schema: Schema<T>): EventDefinition<T>;

  export interface DispatchInputs<S extends Record<string, Schema<any>>> {
    readonly _tag: 'DispatchInputs';
    /** The inputs of this run, with their types. */
    from(ctx: { dispatchInputs: Record<string, any> }): InferShape<S>;
  }
  /** Inputs for dispatch() and schedule(). Schemas may be text, number, integer, boolean, enum and literal. */
  export function defineDispatchInputs<S extends Record<string, Schema<any>>>(schemas: S): DispatchInputs<S>;

  /** The event of a fixture, as triggers, rules and steps see it. */
  export interface FixtureEvent {
    /** `push`, `pull_request`, `dispatch`, … */
    type: string;
    /** What happened to it, such as `opened`. */
    action?: string;
    /** The branch that is pushed to, or that a pull request is for. */
    targetBranch?: string;
    /** The branch that a pull request comes from. */
    sourceBranch?: string;
    /** What the forge sent. */
    payload?: Record<string, unknown>;
  }
  export interface FixtureOptions {
    /** Shown by `kici fixture list`. */
    description?: string;
    /** A built-in event (`push`, `pr:open`, `schedule:0 4 * * *`; `kici fixture list` shows all), or a whole one. */
    event: string | FixtureEvent;
    /** Branch of a built-in event; `main` when there is none. */
    branch?: string;
    /** Payload of a built-in event, in place of the one that it comes with. */
    payload?: Record<string, unknown>;
    /** The files that count as changed. Without, filters for paths pass. */
    changedFiles?: string[];
    /** Inputs of a dispatch. */
    inputs?: Record<string, string | number | boolean>;
  }
  /**
   * A named event to try workflows with: export it from a workflow file, and `kici preview ID` and `kici run local ID`
   * know it.
   */
  export function fixture(id: string, options: FixtureOptions): FixtureOptions & { readonly id: string };
}
