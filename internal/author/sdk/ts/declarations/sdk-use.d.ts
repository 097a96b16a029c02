// The types of `@kici-dev/sdk`, second part: what steps get, rules, triggers, helpers and schemas.

declare module '@kici-dev/sdk' {
  // ---------------------------------------------------------------- the context of a step

  export interface StepContext {
    /** Runs a command: `` await $`make ${target}` ``. Values are quoted; a non-zero exit code throws. */
    $: Shell;
    /** The files of the repository and of the machine. */
    files: Files;
    log: Log;
    /** Environment variables. */
    env: Record<string, string | undefined>;
    /** Sets a variable for later steps. */
    setEnv(name: string, value: string): void;
    /** Puts a folder at the front of PATH for later steps. */
    addPath(folder: string): void;
    /** Aborted when the step must stop: cancelled, timed out, or a sibling failed. */
    signal: any;
    inputs: Record<string, any>;
    /** Inputs of the dispatch; `inputs.from(ctx)` of defineDispatchInputs gives them typed. */
    dispatchInputs: Record<string, any>;
    workflow: { name: string };
    job: { name: string; runsOn: any };
    /** Values of this child of a matrix; a matrix that is a list has `value`. */
    matrix?: Record<string, string>;
    host?: string;
    agent?: { host: string; labels: string[]; platform?: string; arch?: string };
    fanout?: Fanout;
    /** The body that the forge sent. */
    rawPayload?: any;
    provider?: string;
    isTestRun: boolean;
    /** The first context bound to the job. */
    environment?: string;
    /** The event is given to rules and to functions of the event, not to steps. */
    event?: undefined;
    workflowRepo?: RepositoryInfo;
    sourceRepo?: RepositoryInfo;
    secrets: Secrets;
    /** Results of needed jobs by name: `{result, status}`, or a list of those with names for a matrix or group. */
    needs?: Record<string, any>;
    /** Outputs of an earlier step of this job. */
    outputsOf(step: Step | StepFunction<any> | string): any;
    /** Outputs of a needed job. A matrix gives `{byMatrix, merged}`, a fan-out `{byHost, summary}`. */
    jobOutputs(job: Job | string | { name: string }): any;
    /** An output that is stored encrypted and given to jobs that need this one as a secret. At most 20, of 64 KiB each. */
    setSecretOutput(name: string, value: string): void;
    /** Sends an event of your own; workflows with kiciEvent triggers may start. */
    emit(event: string | EventDefinition<any>, payload?: any, options?: { target?: { repos?: string[] } }): Promise<{ deliveryId: string }>;
    cache: {
      restore(spec: CacheSpec): Promise<{ hit: boolean; matchedKey?: string }>;
      save(spec: CacheSpec): Promise<void>;
    };
    artifacts: {
      /**
       * Keeps files with the run, for people to download: `kici admin runs download RUN NAME`. One path of one file goes as it
       * is; anything else goes as a gzipped tar, and its name ends in `.tar.gz`. The bytes are kept as they are: nothing in
       * them is masked. What cannot be kept throws, and says why.
       */
      upload(artifact: ArtifactSpec): Promise<Artifact>;
    };
    /** Attests which run and job made a file (by its path) or an image (by its SHA-256), for others to verify. */
    attestProvenance(o: {
      subject: { name: string; digest?: { sha256: string } | string; path?: string };
      audience?: string;
    }): Promise<{ storageKey: string; subjectDigest: string; bundleMediaType: string }>;
    kici: KiciApi;
  }

  export interface ArtifactSpec {
    /** No two jobs of a run have one name, and no two steps of a job. A step that is tried again replaces what it had uploaded. */
    name: string;
    /**
     * Files, folders and patterns (`dist/**`) within the workspace; a path that begins with `!` takes files out again. Each must
     * find something. Patterns pass over names that begin with a dot. Links stay links, and none may lead out of the workspace.
     */
    paths: string | readonly string[];
  }

  export interface Artifact {
    /** Under which it is kept. */
    name: string;
    sizeBytes: number;
    /** Of the bytes that are kept, in hexadecimal. */
    sha256: string;
    /** How many files it holds. */
    files: number;
  }

  export interface Fanout {
    index: number;
    total: number;
    first: boolean;
    last: boolean;
  }

  export interface RepositoryInfo {
    identifier: string;
    path: string;
    ref?: string;
    sha?: string;
  }

  export interface Log {
    info(message: unknown, ...more: unknown[]): void;
    warn(message: unknown, ...more: unknown[]): void;
    error(message: unknown, ...more: unknown[]): void;
    debug(message: unknown, ...more: unknown[]): void;
  }

  export interface Secrets {
    /** The value. An unknown key throws SecretNotFoundError, which names the keys there are. */
    get(key: string): Promise<string>;
    has(key: string): boolean;
    list(): string[];
    /** The value and where it comes from: `scope` is the context, `backend` the store, '' where the server does not tell. */
    getMeta(key: string): { value: string; backend: string; scope: string } | null;
    /** Puts a secret into the environment of later steps. */
    expose(key: string, as?: string): Promise<void>;
    /** Writes secrets to a private file that is removed after the step. */
    mountFile(o: SecretFile): Promise<{ path: string }>;
    /** The same, with the path in an environment variable. */
    exposeFile(variable: string, o: SecretFile): Promise<{ path: string }>;
  }

  export interface SecretFile {
    /** Keys whose values are written one after another. */
    sources: string[];
    /** Text between them. */
    divider?: string;
    /** Default 0o600. */
    mode?: number;
    /** Name of the file. */
    name?: string;
  }

  /** Files, on every host. A path begins at the folder of the step, or is absolute. */
  export interface Files {
    /** The text of a file. Of at most 64 MiB, as with the other two. */
    read(path: string): Promise<string>;
    /** Its bytes; on Node a Buffer. */
    readBytes(path: string): Promise<Uint8Array>;
    /** What it holds as JSON. */
    readJson<T = any>(path: string): Promise<T>;
    /** Writes text or bytes as they are, any other value as JSON, and makes the folders on the way. */
    write(path: string, data: unknown, options?: { /** Such as 0o755. Default 0o644. */ mode?: number }): Promise<void>;
    /** Writes at the end of a file. */
    append(path: string, data: unknown): Promise<void>;
    /** Whether there is a file or folder. */
    exists(path: string): Promise<boolean>;
    /** The files below the folder of the step that fit a glob such as `src/*.ts`, sorted. `.git` is left out. */
    list(glob: string): Promise<string[]>;
    /** Removes a file, or a folder with all in it. One that is not there is no error. */
    remove(path: string): Promise<void>;
  }

  /**
   * Runs commands with bash (with sh where there is none), strict: `set -euo pipefail`. A value in the template is one
   * argument whatever it holds, a list several. Options in brackets give a shell with those:
   * `` $({ cwd: 'web' })`npm test` ``.
   */
  export interface Shell {
    (pieces: TemplateStringsArray, ...values: unknown[]): ShellCommand;
    (options: ShellOptions): Shell;
  }

  export interface ShellOptions {
    /** Where the command runs. Default: the folder of the step. */
    cwd?: string;
    /** Variables to add; undefined takes one away. */
    env?: Record<string, string | undefined>;
    /** Keeps output out of the log. */
    quiet?: boolean;
    /** false is the same as `quiet`. */
    verbose?: boolean;
    /** Does not throw at a non-zero exit code. */
    nothrow?: boolean;
    /** What the command reads: text, bytes, or the output of another command. */
    stdin?: string | Uint8Array | ShellOutput;
    /** The same as `stdin`. */
    input?: string | Uint8Array | ShellOutput;
    /** Milliseconds, or a text such as `30s`; then the command is ended and the call throws. */
    timeout?: number | string;
    /** The signal of a timeout. Default SIGTERM, and SIGKILL two seconds later. */
    timeoutSignal?: string;
    /** Ends the command when it is aborted. The signal of the step does so in any case. */
    signal?: any;
    /** The signal of `kill()` and of an abort. Default SIGTERM. */
    killSignal?: string;
    /** What becomes of stdin, stdout and stderr, see `stdio()`. */
    stdio?: ShellStdio | [ShellStdio?, ShellStdio?, ShellStdio?];
  }
  /** `pipe`: in the log and in the result (the default), `inherit`: in the log alone, `ignore`: nowhere. */
  export type ShellStdio = 'pipe' | 'inherit' | 'ignore';

  /** What a command printed and how it ended. */
  export interface ShellOutput {
    /** The first 16 MiB. */
    readonly stdout: string;
    readonly stderr: string;
    /** null when a signal ended it. */
    readonly exitCode: number | null;
    /** Such as `SIGTERM`, null when it exited by itself. */
    readonly signal: string | null;
    /** Whether the exit code is 0. */
    readonly ok: boolean;
    /** stdout. */
    text(): string;
    /** The lines of stdout. */
    lines(): string[];
    /** stdout, read as JSON. */
    json<T = any>(): T;
    /** The bytes of stdout; on Node a Buffer. */
    buffer(): Uint8Array;
  }

  /** The error of a command that failed. Its stack shows where the command was called. */
  export interface ShellError extends Error {
    readonly stdout: string;
    readonly stderr: string;
    readonly exitCode: number | null;
    readonly signal: string | null;
  }

  /** A command at work. `await` gives its output; `for await` its lines, as they come. */
  export interface ShellCommand extends Promise<ShellOutput>, AsyncIterable<string> {
    /** Keeps output out of the log. */
    quiet(on?: boolean): this;
    /** Shows output in the log again, where the shell is a quiet one. */
    verbose(on?: boolean): this;
    /** Does not throw at a non-zero exit code. */
    nothrow(on?: boolean): this;
    /** Ends the command after that long (milliseconds, or a text such as `30s`) and throws. */
    timeout(time: number | string, signal?: string): this;
    /** What becomes of stdin, stdout and stderr. */
    stdio(stdin: ShellStdio, stdout?: ShellStdio, stderr?: ShellStdio): this;
    /** Ends the command and all it started: with the signal, default SIGTERM, and by force two seconds later. */
    kill(signal?: string): Promise<void>;
    /** Gives stdout to another command, whose output is the result. It fails when either of them does. */
    pipe(to: ShellCommand): ShellCommand;
    pipe(pieces: TemplateStringsArray, ...values: unknown[]): ShellCommand;
    /** Writes stdout to a file, or line by line to what has a method `write`. */
    pipe(to: string | { write(text: string): unknown }): this;
    /** Lets the command read what is written here, until `end()`. Both give false once it no longer reads. */
    readonly stdin: { write(data: string | Uint8Array): Promise<boolean>; end(data?: string | Uint8Array): Promise<boolean> };
    /** Waits and gives the exit code, whatever it is. */
    readonly exitCode: Promise<number | null>;
    text(): Promise<string>;
    lines(): Promise<string[]>;
    json<T = any>(): Promise<T>;
    buffer(): Promise<Uint8Array>;
  }

  export interface KiciApi {
    infrastructure: { list(): Promise<{ scalers: any[]; agents: any[] }> };
    inventory: { query(selector?: Record<string, any>): Promise<any[]>; get(agentId: string): Promise<any | null> };
    oidc: { token(o: { audience: string }): Promise<any> };
    host: { requestReboot(o?: { deadlineMs?: number }): Promise<void> };
    bootstrap: {
      ensureInitRunner(agentId: string): Promise<{ broughtUp: boolean }>;
      preBootSend(agentId: string, o: { inputSecret: string; port?: number; command?: string }): Promise<void>;
    };
  }

  // ---------------------------------------------------------------- rules

  export interface RuleContext {
    event: EventEnvelope;
    changedFiles: string[];
    env: Record<string, string | undefined>;
    dispatchInputs: Record<string, any>;
    fanout?: Fanout;
    $: Shell;
  }

  export interface Rule {
    readonly _tag: 'Rule';
    label: string;
    check: (ctx: RuleContext) => Awaitable<boolean>;
  }

  /** A condition. Without a check it is always true. A check that throws counts as false. */
  export function rule(label: string, check?: (ctx: RuleContext) => Awaitable<boolean>): Rule;
  /** The opposite: skips when the check is true. */
  export function skip(label: string, check: (ctx: RuleContext) => Awaitable<boolean>): Rule;
  /** True on the first host of a fan-out, and outside of one. */
  export function onlyOnFirstHost(): Rule;
  export function onlyOnLastHost(): Rule;
  export function onlyOnFanoutIndex(index: number): Rule;
  export function isEventType(event: EventEnvelope | undefined, type: string): boolean;

  // ---------------------------------------------------------------- triggers

  export interface Trigger {
    readonly _tag: 'Trigger';
    readonly kind: string;
  }

  export interface Described {
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
    events: OneOrMany<string>;
    /** Without them all. */
    actions?: OneOrMany<string>;
  }

  /** Values at paths of a payload, such as `{ 'alert.severity': 'high' }`; a list means any of them, `/…/` an expression. */
  export type PathMap = Record<string, any>;

  /** Events sent with `ctx.emit`: `kiciEvent('shipped')`. */
  export function kiciEvent(options: KiciEventTrigger): Trigger;
  export function kiciEvent(name: string | EventDefinition<any>, options?: Omit<KiciEventTrigger, 'name'>): Trigger;
  export interface KiciEventTrigger extends Described {
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
    events: OneOrMany<LifecycleEvent>;
    /** Repositories. Without them all. */
    sources?: OneOrMany<string>;
  }

  // ---------------------------------------------------------------- events and inputs of your own

  export interface EventDefinition<T> {
    readonly _tag: 'EventDefinition';
    readonly name: string;
    readonly schema: Schema<T>;
  }
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
    action?: string;
    /** The branch that is pushed to, or that a pull request is for. */
    targetBranch?: string;
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

  // ---------------------------------------------------------------- waiting, checking

  export interface WaitOptions<T> {
    name?: string;
    /** Asked until it gives something other than null or undefined. */
    check: () => Awaitable<T | null | undefined>;
    /** Default 2000. */
    intervalMs?: number;
    /** Default 60000. */
    timeoutMs?: number;
    initialDelayMs?: number;
    /** Whether a check that throws counts as "not yet". Default true. */
    swallowErrors?: boolean;
    onSuccess?: (value: T) => any;
    onTimeout?: (error: WaitForTimeoutError) => any;
  }
  export function waitFor<T>(options: WaitOptions<T>): Promise<T>;
  export function waitForStep<T>(
    name: string,
    options: Omit<WaitOptions<T>, 'check' | 'name'> & { check: (ctx: StepContext) => Awaitable<T | null | undefined> } & Omit<StepOptions, 'run' | 'check'>,
  ): Step;
  export function waitForHostAlive(agentId: string, options?: { intervalMs?: number; timeoutMs?: number }): Promise<any>;
  export function restartHost(options?: { deadlineMs?: number; agentId?: string; intervalMs?: number; timeoutMs?: number }): Promise<any>;
  export class WaitForTimeoutError extends Error {
    readonly attempts: number;
    readonly timeoutMs: number;
  }
  /** Inside a step: looks, and changes only what is not as it should be. */
  export function idempotent<D, R>(options: {
    check: () => Awaitable<D | null>;
    apply: (drift: D) => Awaitable<R>;
  }): Promise<{ changed: boolean; drift: D | null; result: R | undefined }>;
  export function idempotentStep<D>(
    name: string,
    options: { check: (ctx: StepContext) => Awaitable<D | null>; apply: (ctx: StepContext, drift: D) => Awaitable<any> } & Omit<StepOptions, 'run' | 'check'>,
  ): Step;
  /** A step with a check facet, see `check` of StepOptions. */
  export function checkStep<D>(
    name: string,
    options: {
      check: (ctx: StepContext) => Awaitable<D | null>;
      apply: (ctx: StepContext, drift: D) => Awaitable<any>;
      summarize: (drift: D) => Awaitable<string>;
    } & Omit<StepOptions, 'run' | 'check' | 'summarize'>,
  ): Step;
  export class SecretNotFoundError extends Error {
    readonly key: string;
  }

  // ---------------------------------------------------------------- matrices and graphs

  export function expandMatrix(matrix: string[] | Record<string, string[]>): Record<string, string>[];
  export function applyIncludeExclude(
    all: Record<string, string>[], include?: Record<string, string>[] | null, exclude?: Record<string, string>[] | null,
  ): Record<string, string>[];
  export function validateDag(nodes: { name: string; needs?: string[] }[]): { code: string; node: string; message: string; suggestion?: string }[];
  export function normalizeApproval(approval: Approval | undefined):
    | { clauses: Approver[]; reason?: string; timeoutSeconds?: number; when: 'always' | 'drift' }
    | undefined;

  // ---------------------------------------------------------------- schemas

  /** What a value must be. Schemas of zod 4 are accepted as well. */
  export interface Schema<T> {
    safeParse(value: unknown): { success: true; data: T } | { success: false; error: any };
  }
  export type ZodType<T = any> = SchemaBuilder<T>;
  export type Infer<S> = S extends Schema<infer T> ? T : never;
  export type InferShape<S extends Record<string, Schema<any>>> = {
    [K in keyof S as undefined extends Infer<S[K]> ? never : K]: Infer<S[K]>;
  } & {
    [K in keyof S as undefined extends Infer<S[K]> ? K : never]?: Infer<S[K]>;
  };

  export interface SchemaBuilder<T> extends Schema<T> {
    parse(value: unknown): T;
    optional(): SchemaBuilder<T | undefined>;
    nullable(): SchemaBuilder<T | null>;
    nullish(): SchemaBuilder<T | null | undefined>;
    default(value: T | (() => T)): SchemaBuilder<T>;
    array(): ArrayBuilder<T>;
    or<U>(other: Schema<U>): SchemaBuilder<T | U>;
    describe(text: string): this;
    meta(data: unknown): this;
    refine(test: (value: T) => unknown, options?: string | { message?: string }): this;
  }
  export interface TextBuilder extends SchemaBuilder<string> {
    min(n: number): this;
    max(n: number): this;
    length(n: number): this;
    nonempty(): this;
    regex(pattern: RegExp): this;
    startsWith(text: string): this;
    endsWith(text: string): this;
    includes(text: string): this;
    email(): this;
    url(): this;
    uuid(): this;
  }
  export interface NumberBuilder extends SchemaBuilder<number> {
    int(): this;
    min(n: number): this;
    max(n: number): this;
    gte(n: number): this;
    lte(n: number): this;
    gt(n: number): this;
    lt(n: number): this;
    positive(): this;
    negative(): this;
    nonnegative(): this;
    nonpositive(): this;
    multipleOf(n: number): this;
  }
  export interface ArrayBuilder<T> extends SchemaBuilder<T[]> {
    min(n: number): this;
    max(n: number): this;
    length(n: number): this;
    nonempty(): this;
  }
  export interface ObjectBuilder<S extends Record<string, Schema<any>>> extends SchemaBuilder<InferShape<S>> {
    readonly shape: S;
    strict(): ObjectBuilder<S>;
    passthrough(): ObjectBuilder<S>;
    extend<M extends Record<string, Schema<any>>>(more: M): ObjectBuilder<Omit<S, keyof M> & M>;
    partial(): SchemaBuilder<Partial<InferShape<S>>>;
    pick<K extends keyof S>(keys: Record<K, true>): ObjectBuilder<Pick<S, K>>;
    omit<K extends keyof S>(keys: Record<K, true>): ObjectBuilder<Omit<S, K>>;
  }

  export class ZodError extends Error {
    readonly issues: { code: string; path: (string | number)[]; message: string }[];
  }

  /** Builds schemas. `import { z } from 'zod'` gives the same where zod is not installed. */
  export const z: {
    string(): TextBuilder;
    number(): NumberBuilder;
    int(): NumberBuilder;
    boolean(): SchemaBuilder<boolean>;
    enum<const V extends readonly string[]>(values: V): SchemaBuilder<V[number]> & { options: V };
    nativeEnum<E extends Record<string, string>>(values: E): SchemaBuilder<E[keyof E]>;
    literal<const V extends string | number | boolean | null>(value: V): SchemaBuilder<V>;
    array<T>(element: Schema<T>): ArrayBuilder<T>;
    object<S extends Record<string, Schema<any>>>(shape: S): ObjectBuilder<S>;
    strictObject<S extends Record<string, Schema<any>>>(shape: S): ObjectBuilder<S>;
    looseObject<S extends Record<string, Schema<any>>>(shape: S): ObjectBuilder<S>;
    record<V>(key: Schema<string>, value: Schema<V>): SchemaBuilder<Record<string, V>>;
    tuple<const I extends readonly Schema<any>[]>(items: I): SchemaBuilder<{ -readonly [K in keyof I]: Infer<I[K]> }>;
    union<const O extends readonly Schema<any>[]>(options: O): SchemaBuilder<Infer<O[number]>>;
    optional<T>(schema: Schema<T>): SchemaBuilder<T | undefined>;
    nullable<T>(schema: Schema<T>): SchemaBuilder<T | null>;
    any(): SchemaBuilder<any>;
    unknown(): SchemaBuilder<unknown>;
    null(): SchemaBuilder<null>;
    undefined(): SchemaBuilder<undefined>;
    void(): SchemaBuilder<void>;
    email(): TextBuilder;
    url(): TextBuilder;
    uuid(): TextBuilder;
  };
  export namespace z {
    /** The type of the values of a schema. */
    type infer<S> = Infer<S>;
  }
}
