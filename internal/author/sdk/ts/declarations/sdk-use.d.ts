// The types of `@kici-dev/sdk`, second part: what steps and rules get.

declare module '@kici-dev/sdk' {
  // ---------------------------------------------------------------- the context of a step

  export interface StepContext {
    /** Runs a command: `` await $`make ${target}` ``. Values are quoted; a non-zero exit code throws. */
    $: Shell;
    /** The files of the repository and of the machine. */
    files: Files;
    /** Writes to the log of the step. */
    log: Log;
    /** Environment variables. */
    env: Record<string, string | undefined>;
    /** Sets a variable for later steps. */
    setEnv(name: string, value: string | number | boolean): void;
    /** Puts a folder at the front of PATH for later steps. */
    addPath(folder: string): void;
    /** Aborted when the step must stop: cancelled, timed out, or a sibling failed. */
    signal: any;
    /** Empty: outputs of needed jobs are in `jobOutputs` and `needs`. */
    inputs: Record<string, any>;
    /** Inputs of the dispatch; `inputs.from(ctx)` of defineDispatchInputs gives them typed. */
    dispatchInputs: Record<string, any>;
    /** The workflow. */
    workflow: { name: string };
    /** The job; of a child of a matrix the name of all its children. */
    job: { name: string; runsOn: any };
    /** Values of this child of a matrix; a matrix that is a list has `value`. */
    matrix?: Record<string, string>;
    /** The host, in a fan-out over hosts. */
    host?: string;
    /** The agent of that host. */
    agent?: { host: string; labels: string[]; platform?: string; arch?: string };
    /** The place of this child among its siblings. */
    fanout?: Fanout;
    /** The body that the forge sent. */
    rawPayload?: any;
    /** The kind of forge: `github`, `generic`, `local`. */
    provider?: string;
    /** Whether this is a test run of an author. */
    isTestRun: boolean;
    /** The first context bound to the job. */
    environment?: string;
    /** The event is given to rules and to functions of the event, not to steps. */
    event?: undefined;
    /** Of a global workflow: its own repository. */
    workflowRepo?: RepositoryInfo;
    /** Of a global workflow: the repository that the event came from. */
    sourceRepo?: RepositoryInfo;
    /** Secrets of the job. */
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
    /** Files that are kept between runs. */
    cache: {
      restore(spec: CacheSpec): Promise<{ hit: boolean; matchedKey?: string }>;
      save(spec: CacheSpec): Promise<void>;
    };
    /** Files that are kept with the run. */
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
    /** What the server knows of its machines, and tokens. */
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
    /** Bytes. */
    sizeBytes: number;
    /** Of the bytes that are kept, in hexadecimal. */
    sha256: string;
    /** How many files it holds. */
    files: number;
  }

  export interface Fanout {
    /** From 0, in the order of names. */
    index: number;
    /** How many there are. */
    total: number;
    /** Whether it is the first. */
    first: boolean;
    /** Whether it is the last. */
    last: boolean;
  }

  export interface RepositoryInfo {
    /** Such as `acme/app`. */
    identifier: string;
    /** The folder of its checkout. */
    path: string;
    /** The branch or tag. */
    ref?: string;
    /** The commit. */
    sha?: string;
  }

  export interface Log {
    /** A line; several values stand side by side, objects as JSON. */
    info(message: unknown, ...more: unknown[]): void;
    /** A line marked `[warn]`. */
    warn(message: unknown, ...more: unknown[]): void;
    /** A line marked `[error]`. */
    error(message: unknown, ...more: unknown[]): void;
    /** A line that is shown at the log level debug only. */
    debug(message: unknown, ...more: unknown[]): void;
  }

  export interface Secrets {
    /** The value. An unknown key throws SecretNotFoundError, which names the keys there are. */
    get(key: string): Promise<string>;
    /** Whether there is such a secret. */
    has(key: string): boolean;
    /** The keys, sorted. */
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
   * argument whatever it holds, a list several; promises and other commands are awaited first. Options in brackets give a shell with those:
   * `` $({ cwd: 'web' })`npm test` ``.
   */
  export interface Shell {
    (pieces: TemplateStringsArray, ...values: unknown[]): ShellCommand;
    (options: ShellOptions): Shell;
  }

  export interface ShellOptions {
    /** Where the command runs, from the folder of the step, which is the default. */
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
    /** The first 16 MiB. */
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
    /** What it printed. */
    readonly stdout: string;
    /** What it printed of mistakes. */
    readonly stderr: string;
    /** null when a signal ended it. */
    readonly exitCode: number | null;
    /** Such as `SIGTERM`, null when it exited by itself. */
    readonly signal: string | null;
    /** false. */
    readonly ok: boolean;
    /** stdout, as with ShellOutput. */
    text(): string;
    /** The lines of stdout. */
    lines(): string[];
    /** stdout, read as JSON. */
    json<T = any>(): T;
    /** The bytes of stdout; on Node a Buffer. */
    buffer(): Uint8Array;
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
    /** The same, with the other command as a template. */
    pipe(pieces: TemplateStringsArray, ...values: unknown[]): ShellCommand;
    /** Writes stdout to a file, or line by line to what has a method `write`. */
    pipe(to: string | { write(text: string): unknown }): this;
    /** Lets the command read what is written here, until `end()`. Both give false once it no longer reads. */
    readonly stdin: { write(data: string | Uint8Array): Promise<boolean>; end(data?: string | Uint8Array): Promise<boolean> };
    /** Waits and gives the exit code, whatever it is. */
    readonly exitCode: Promise<number | null>;
    /** Waits and gives stdout. */
    text(): Promise<string>;
    /** Waits and gives the lines of stdout. */
    lines(): Promise<string[]>;
    /** Waits and reads stdout as JSON. */
    json<T = any>(): Promise<T>;
    /** Waits and gives the bytes of stdout; on Node a Buffer. */
    buffer(): Promise<Uint8Array>;
  }

  export interface KiciApi {
    /** The pools of machines and the agents that are connected. */
    infrastructure: { list(): Promise<{ scalers: any[]; agents: any[] }> };
    /** The hosts: those that fit a selector, or one by its id. */
    inventory: { query(selector?: Record<string, any>): Promise<any[]>; get(agentId: string): Promise<any | null> };
    /** A token by which other services know this job. It is masked in logs. */
    oidc: { token(o: { audience: string }): Promise<any> };
    /** Asks for a reboot of the host after this job. */
    host: { requestReboot(o?: { deadlineMs?: number }): Promise<void> };
    /** Brings hosts up that have no agent yet. */
    bootstrap: {
      ensureInitRunner(agentId: string): Promise<{ broughtUp: boolean }>;
      preBootSend(agentId: string, o: { inputSecret: string; port?: number; command?: string }): Promise<void>;
    };
  }

  // ---------------------------------------------------------------- rules

  export interface RuleContext {
    /** The event that started the run. */
    event: EventEnvelope;
    /** Paths that it changes, where known. */
    changedFiles: string[];
    /** Environment variables. */
    env: Record<string, string | undefined>;
    /** Inputs of the dispatch. */
    dispatchInputs: Record<string, any>;
    /** The place of this child among its siblings. */
    fanout?: Fanout;
    /** Runs commands. */
    $: Shell;
  }

  export interface Rule {
    readonly _tag: 'Rule';
    /** Shown to people. */
    label: string;
    /** Whether to go on. */
    check: (ctx: RuleContext) => Awaitable<boolean>;
  }

  /** A condition. Without a check it is always true. A check that throws counts as false. */
  export function rule(label: string, check?: (ctx: RuleContext) => Awaitable<boolean>): Rule;
  /** The opposite: skips when the check is true. */
  export function skip(label: string, check: (ctx: RuleContext) => Awaitable<boolean>): Rule;
  /** True on the first host of a fan-out, and outside of one. */
  export function onlyOnFirstHost(): Rule;
  /** True on the last host of a fan-out, and outside of one. */
  export function onlyOnLastHost(): Rule;
  /** True on the host of that index in a fan-out; outside of one the index is 0. */
  export function onlyOnFanoutIndex(index: number): Rule;
  /** Whether the event is of that type. */
  export function isEventType<T extends string>(event: EventEnvelope | undefined, type: T): event is EventEnvelope & { type: T };
}
