// The types of `@kici-dev/sdk`. Written by `kici init`; the module itself is part of the kici binary.

declare module '@kici-dev/sdk' {
  export type OneOrMany<T> = T | T[];
  export type Awaitable<T> = T | Promise<T>;
  /** A glob such as `release/*` (text) or a regular expression. */
  export type Pattern = string | RegExp;

  // ---------------------------------------------------------------- events

  /** An event as every trigger, rule and function of the event sees it, whatever forge it came from. */
  export interface EventEnvelope {
    /** `push`, `tag`, `pull_request`, `dispatch`, `schedule`, … */
    type: string;
    /** What happened to it, such as `opened`. */
    action?: string;
    /** The branch that was pushed to, or that a pull request wants to merge into. */
    targetBranch?: string;
    /** The branch that a pull request comes from. */
    sourceBranch?: string;
    /** The branch that a pull request wants to merge into. */
    baseBranch?: string;
    /** The body that the forge sent. */
    payload: any;
    /** Whether a pull request comes from a fork. */
    isForkPR?: boolean;
    /** Paths that the push or pull request changes, where known. */
    changedFiles?: string[];
    /** Whether those could be had: filters for paths pass where they could not. */
    changedFilesStatus?: 'fetched' | 'unavailable';
    /** The kind of forge: `github`, `generic`, `local`. */
    provider?: string;
    /** Who did it, as the forge calls them. */
    senderUsername?: string;
    /** Their id at the forge. */
    senderUserId?: string;
    /** The repository that it happened in. */
    sourceRepo?: string;
  }

  // ---------------------------------------------------------------- workflows

  export interface WorkflowOptions {
    /** The jobs, and functions that generate jobs. */
    jobs: (Job | Generator)[];
    /** What starts the workflow. Without it the workflow only starts by name. */
    on?: OneOrMany<Trigger>;
    /** Shown to people. */
    description?: string;
    /** Conditions shown beside the workflow. */
    rules?: Rule[];
    /** Globs of further files whose content is part of the workflow's hash, from the repository's root. */
    hashFiles?: string[];
    /** Private npm registries from which dependencies are installed. */
    registries?: Registry[];
    /** Secrets for the environment of the installation of dependencies, each `<context>:<secret>`. */
    installEnv?: string[];
    /** How long the whole run may take, in milliseconds. */
    timeout?: number;
    /** Lets only so many runs of one group run at once. */
    concurrency?: {
      /** The name of the group of this run. */
      group: (o: { branch: string; event: EventEnvelope }) => Awaitable<string>;
      /** Whether a new run cancels older ones of its group (default) or waits for them. */
      cancelInProgress?: boolean;
      /** How many runs of a group may run at once. Default 1. */
      max?: number;
    };
    /** Shown beside the workflow; hooks that run are those of jobs and steps. */
    onCancel?: Hook;
    /** As `onCancel`. */
    cleanup?: Hook;
    /** As `onCancel`. */
    onSuccess?: Hook;
    /** As `onCancel`. */
    onFailure?: Hook;
    /** Who must agree before any job runs. */
    approval?: Approval;
  }

  export interface Registry {
    /** Where the registry is, with https://. */
    url: string;
    /** Only packages of this scope, such as `@acme`. At most one registry is without a scope. */
    scope?: string;
    /** The secret that holds the token, `<context>:<secret>`. */
    tokenSecret: string;
    /** Sends the token with every request. */
    alwaysAuth?: boolean;
  }

  export interface Workflow extends WorkflowOptions {
    readonly _tag: 'Workflow';
    /** The name, unique in the repository. */
    readonly name: string;
  }

  /** Makes a workflow. Export it, by name or as default. The name is unique in the repository. */
  export function workflow(name: string, options: WorkflowOptions): Workflow;

  // ---------------------------------------------------------------- jobs

  /**
   * Which agents may run a job: labels of which an agent must have all. A text with `*`, `?`, `[…]` or `{…}` is a glob,
   * a RegExp a regular expression.
   */
  export type RunsOn =
    | OneOrMany<Pattern>
    | {
        labels: OneOrMany<Pattern>;
        /** Labels that the agent must not have. */
        exclude?: OneOrMany<Pattern>;
        /** Which of several idle agents: the one of the lowest id (default) or any. */
        pick?: 'deterministic' | 'any';
      };

  /** Which hosts all run a job: labels (one with a leading `!` excludes), or groups of labels of which one must fit. */
  export type RunsOnAll = OneOrMany<Pattern> | { include: { all: OneOrMany<Pattern> }[]; exclude?: OneOrMany<Pattern> };

  /** Values of a matrix: a list, or a list for each dimension. */
  export type Matrix = readonly (string | number | boolean)[] | Record<string, readonly (string | number | boolean)[]>;

  export interface JobOptions {
    /** Labels of the agent that runs the job. Exactly one of `runsOn` and `runsOnAll` is given. */
    runsOn?: RunsOn;
    /** Runs the job once on every host that fits. */
    runsOnAll?: RunsOnAll;
    /** With `runsOnAll`: what a host that cannot be reached does to the job. Default `hold`. */
    onUnreachable?: 'skip' | 'fail' | 'hold';
    /** With `runsOnAll`: also hosts that are declared but have no agent yet. */
    includeUninitialized?: boolean;
    /** How many children of a matrix or fan-out run at once. */
    maxParallel?: number;
    /** Whether the first failed child keeps those that have not started from starting. */
    failFast?: boolean;
    /** The steps, one after another. Either `steps` or `run`. */
    steps?: StepEntry[];
    /** One unnamed step. */
    run?: StepFunction<any>;
    /** Jobs and groups that must end first. Without `when` they must succeed. */
    needs?: OneOrMany<Need>;
    /** One child job for each value, or for each combination of the values of several dimensions: at most 256. A function
     * is called once by an agent, within a minute, in a checkout of the repository. */
    matrix?: Matrix | ((o: GeneratorInput) => Awaitable<Matrix>);
    /** Combinations to add to the matrix. */
    include?: Record<string, string | number | boolean>[];
    /** Combinations to leave out; an entry with some of the dimensions leaves out all that it fits. */
    exclude?: Record<string, string | number | boolean>[];
    /** The context whose variables and secrets the job gets. A pure arrow function of the event is evaluated by the
     * server, any other by an agent before the job, within a minute. The same holds of `env` and `concurrencyGroup`. */
    environment?: string | ((event: EventEnvelope) => Awaitable<string>);
    /** Several contexts; of one name in several the last wins. */
    environments?: (string | ((event: EventEnvelope) => Awaitable<string>))[];
    /** Another spelling of `environment`. */
    context?: string | ((event: EventEnvelope) => Awaitable<string>);
    /** Another spelling of `environments`. */
    contexts?: (string | ((event: EventEnvelope) => Awaitable<string>))[];
    /** More environment variables. */
    env?: Record<string, string | number | boolean> | ((event: EventEnvelope) => Awaitable<Record<string, string | number | boolean>>);
    /** Jobs of one group never run at the same time. Default: the first of `environments` when that is a plain name. */
    concurrencyGroup?: string | ((event: EventEnvelope) => Awaitable<string>);
    /** Conditions; when one is false the job's steps are skipped and the job succeeds. */
    rules?: Rule[];
    /** Runs when the job is cancelled, within `gracePeriod`. */
    onCancel?: Hook;
    /** Runs at the end in every case, after `onSuccess` or `onFailure`. Its failure fails the job. */
    cleanup?: Hook;
    /** Runs after the last step when all went well. Its failure fails the job. */
    onSuccess?: Hook;
    /** Runs after a step that failed the job. */
    onFailure?: Hook;
    /** Runs before each step. Its failure is logged and nothing else. */
    beforeStep?: Hook;
    /** Runs after each step. Its failure is logged and nothing else. */
    afterStep?: Hook;
    /** Whether the repository is cloned. Default true. */
    checkout?: boolean;
    /** The container in which the steps run. */
    container?: string | { image: string; env?: Record<string, string> };
    /** Preparation of tools before the first step. */
    init?: InitSpec | InitSpec[];
    /** Restored before the first step, saved after success. */
    cache?: OneOrMany<CacheSpec>;
    /** What the job needs of the machine. A request must not be above its limit. */
    resources?: {
      /** What the job needs: `cpus` as a number, `memory` such as `512m` or `2g`. */
      requests?: { cpus?: number; memory?: string };
      /** What it may use at most. */
      limits?: { cpus?: number; memory?: string };
    };
    /** Seconds between a polite stop and the hard one when the job is cancelled. */
    gracePeriod?: number;
    /** How long the job may take, in milliseconds. */
    timeout?: number;
    /** Who must agree before the job runs. */
    approval?: Approval;
    /** Shown to people. */
    description?: string;
  }

  export type InitSpec =
    | false
    | 'auto'
    | 'mise'
    | { mise: { cache?: OneOrMany<CacheSpec>; timeout?: number; env?: Record<string, string>; shell?: string } }
    | { run: string; shell?: string; cache?: OneOrMany<CacheSpec>; timeout?: number; env?: Record<string, string> };

  export interface Job extends JobOptions {
    readonly _tag: 'Job';
    /** The name, unique in the workflow. */
    name?: string;
    /** Outputs of the job, to be read inside functions of later jobs: `build.result.version.tag`. */
    readonly result: any;
  }

  /** Makes a job. Without a name it is called `job-N`. */
  export function job(name: string, options: JobOptions): Job;
  export function job(options: JobOptions): Job;

  /** On which ends of a needed job this one runs. */
  export type When = 'on-success' | 'always' | 'on-skip' | 'on-failure' | JobStatus[];
  export type JobStatus = 'success' | 'failed' | 'cancelled' | 'skipped' | 'timed_out_stale' | 'drift_dropped';
  export type Need =
    | string
    | Job
    | { name: string | Job; when?: When }
    | { group: string; when?: When }
    | DynamicGroup;

  export interface DynamicGroup {
    readonly _tag: 'DynamicGroup';
    /** The name of the group. */
    group: string;
    /** On which ends of its jobs. */
    when?: When;
  }

  /** A need of all jobs that a generator of this group made. */
  export function dynamicGroup(group: string, options?: { when?: When }): DynamicGroup;

  /** What a generator or a function for a matrix gets. */
  export interface GeneratorInput {
    /** Runs commands in a checkout of the repository. */
    $: Shell;
    /** The files of that checkout. */
    files: Files;
    /** What it is called for. */
    ctx: {
      workflow: { name: string };
      event: EventEnvelope;
      /** Of a generator with `needs`: `{result, status}` of each job, and for a matrix or group a list of those with
       * names. They are as they were when the generator ran first. */
      needs?: Record<string, any>;
    };
    /** Writes to the log of the evaluation. */
    log: Log;
    /** The agent's variables without those of any job; contexts are not bound yet. */
    env: Record<string, string | undefined>;
    /** What the server knows of its machines. */
    kici: KiciApi;
  }

  /**
   * Makes jobs while the run goes on, at most 100, with names that no other job of the run has. Their fields may be
   * functions; a generator itself may take two minutes.
   *
   * It is called more than once: to know the jobs, and again by each job for the functions of its steps. So it must give
   * the same jobs for the same event: no clock, no chance, nothing that changes from machine to machine. A job that it no
   * longer gives fails; others that it no longer gives are dropped, and the run fails.
   */
  export type GenerateJobs = (o: GeneratorInput) => Awaitable<Job[]>;
  export type Generator = GenerateJobs;

  /**
   * A generator whose jobs form a group. Others need the group with `dynamicGroup`, and find in `ctx.needs.<group>` a list
   * of `{name, result, status}`. A group without jobs holds up nobody; one whose generator failed counts as failed.
   *
   * With `needs` the generator waits for jobs or groups and reads their results:
   *
   *     dynamicJob('deploys', {
   *       needs: ['plan'],
   *       generate: ({ ctx }) => ctx.needs!.plan.result.list.targets.map((name: string) => job(`deploy-${name}`, { … })),
   *     })
   */
  export function dynamicJob(group: string, generate: GenerateJobs): Generator;
  export function dynamicJob(group: string, options: { needs?: OneOrMany<Need>; generate: GenerateJobs }): Generator;

  // ---------------------------------------------------------------- steps

  export type StepFunction<R> = (ctx: StepContext, drift?: any) => Awaitable<R>;
  export type StepEntry = Step | StepFunction<any> | ParallelGroup;

  /** Schemas of the outputs of a step, by name. */
  export type OutputSchemas = Record<string, Schema<any>>;
  export type OutputsOf<O extends OutputSchemas> = InferShape<O>;

  export interface StepOptions<O extends OutputSchemas = OutputSchemas, D = any> {
    /** The work. The object it returns are the step's outputs. */
    run: (ctx: StepContext, drift: D) => Awaitable<OutputSchemas extends O ? any : OutputsOf<O>>;
    /** What the outputs must be. A result that does not fit fails the step. */
    outputs?: O;
    /** Whether later steps run although this one failed. The job still fails. */
    continueOnError?: boolean;
    /** How long one attempt may take, in milliseconds. Default 30 minutes. */
    timeout?: number;
    /** Further attempts after a failure: their number, or all details. */
    retry?: number | RetryOptions;
    /** Restored before the step, saved after it where the key is new. */
    cache?: OneOrMany<CacheSpec>;
    /** Conditions; when one is false the step is skipped. */
    rules?: Rule[];
    /** Runs when the job is cancelled after this step has begun. */
    onCancel?: Hook;
    /** Runs after `onCancel`. */
    cleanup?: Hook;
    /** Who must agree before the step runs, or before drift is removed. */
    approval?: Approval;
    /** Looks for drift: what differs from how it should be, or null. With it `run` is called only when there is any. */
    check?: (ctx: StepContext) => Awaitable<D | null>;
    /** Tells people about the drift. Required with `check`. */
    summarize?: (drift: any) => Awaitable<string>;
    /** What the drift must be. One that does not fit fails the step. */
    drift?: Schema<any>;
    /** Gives the outputs when there is no drift. */
    whenInSync?: (ctx: StepContext) => Awaitable<any>;
    /** Shown to people. */
    description?: string;
  }

  export interface RetryOptions {
    /** How many attempts in all, at least 1. */
    maxAttempts: number;
    /** Pause after the first attempt. Default 1000. */
    delayMs?: number;
    /** Whether pauses double (default) or stay. */
    backoff?: 'exponential' | 'fixed';
    /** Longest pause. Default 30000. */
    maxDelayMs?: number;
    /** Whether an error is worth another attempt. */
    retryIf?: (error: any) => Awaitable<boolean>;
  }

  export interface Step {
    readonly _tag: 'Step';
    /** The name, under which its outputs are kept. */
    name?: string;
    /** Outputs of the step, to be read inside functions of later steps. */
    readonly result: any;
  }

  /** Makes a step of a function or of options. Without a name it is called `step-N`. */
  export function step(name: string, run: StepFunction<any>): Step;
  export function step(run: StepFunction<any>): Step;
  export function step<O extends OutputSchemas = OutputSchemas, D = any>(name: string, options: StepOptions<O, D>): Step;
  export function step<O extends OutputSchemas = OutputSchemas, D = any>(options: StepOptions<O, D>): Step;

  export interface ParallelGroup {
    readonly _tag: 'ParallelGroup';
    /** The name; default `parallel-N`. */
    name?: string;
  }

  /** Runs steps side by side. Their names differ, groups cannot be nested, and they may not change the environment. */
  export function parallel(
    steps: (Step | StepFunction<any>)[],
    options?: {
      name?: string;
      /** Whether the first failure cancels the others. Default true. */
      failFast?: boolean;
      /** How many run at once. Default all. */
      maxParallel?: number;
    },
  ): ParallelGroup;

  /** Files that are kept between runs under a key. */
  export interface CacheSpec {
    /** Entries never change: the first to save a key wins. */
    key: string;
    /** Paths in the repository, or beginning with `~`. */
    paths: string | string[];
    /** Beginnings of keys to take instead when the key itself is not there; the newest entry wins. */
    restoreKeys?: string[];
  }

  /** `true` (anyone who may approve), a list (all of them) or details. */
  export type Approval =
    | boolean
    | Approver[]
    | {
        approvers?: Approver[];
        /** Always, or only when a check found drift. */
        when?: 'always' | 'drift';
        reason?: string;
        /** Seconds until it expires. */
        timeout?: number;
      };
  export type Approver = { team: string } | { user: string };

  export type Hook = HookFunction | { run: HookFunction; /** Milliseconds; default 5 minutes. */ timeout?: number };
  export type HookFunction = (ctx: HookContext) => Awaitable<void>;

  export interface HookContext extends StepContext {
    /** How the job stands or has ended. */
    outcome: {
      status: 'cancelled' | 'success' | 'failed';
      reason?: string;
      failedStep?: string;
      stepOutputs: Record<string, any>;
      /** Milliseconds. */
      duration: number;
    };
  }
}
