// `$`: commands as zx has them.

import { base64Decode, base64Encode, bytesOf, utf8Encode } from '../web/bytes';
import { host, log, timer } from './host';
import { Printed, compose, type Command } from './quoting';
import { checkOptions, checkSignal, milliseconds, type Options, type Stdio } from './shell-options';
import { AbortError, type Signal } from './signal';

/** What one `$` is bound to. */
export interface ShellScope {
  cwd: string;
  env: Record<string, string>;
  stepIndex: number;
  signal?: Signal;
  /** Commands at work, so that the end of a step can wait for those it kills. */
  running: Set<Promise<unknown>>;
}

interface Ended {
  stdout: string;
  /** Base64 of stdout, where that is no text. */
  bytes?: string;
  stderr: string;
  exitCode: number | null;
  signal?: string;
}

/** How a command ended. */
export class ProcessOutput extends Printed {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  declare private readonly raw?: string;
  constructor(ended: Ended) {
    super();
    this.stdout = ended.stdout;
    this.stderr = ended.stderr;
    this.exitCode = ended.exitCode;
    this.signal = ended.signal ?? null;
    Object.defineProperty(this, 'raw', { value: ended.bytes }); // hidden: outputs are often shown as JSON
  }
  get ok(): boolean { return this.exitCode === 0; }
  text(): string { return this.stdout; }
  lines(): string[] { return linesOf(this.stdout); }
  json(): any {
    try {
      return JSON.parse(this.stdout);
    } catch (e: any) {
      throw new SyntaxError(`what the command printed is no JSON: ${e.message}`);
    }
  }
  buffer(): Uint8Array { return asBuffer(this.raw === undefined ? utf8Encode(this.stdout) : base64Decode(this.raw)!); }
  valueOf(): string { return this.stdout.trimEnd(); }
  toString(): string { return this.stdout; }
  [Symbol.iterator](): Iterator<string> { return this.lines()[Symbol.iterator](); }
}

// On node bytes are a Buffer, as all of node's own functions give them.
export function asBuffer(bytes: Uint8Array): Uint8Array {
  const { Buffer } = globalThis as any;
  return Buffer ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength) : bytes;
}

/** The error of a command that failed. It carries what ProcessOutput has. */
export class ProcessError extends Error {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  declare private readonly output: ProcessOutput;
  constructor(message: string, ended: Ended) {
    super(message);
    this.name = 'ProcessError';
    this.stdout = ended.stdout;
    this.stderr = ended.stderr;
    this.exitCode = ended.exitCode;
    this.signal = ended.signal ?? null;
    Object.defineProperty(this, 'output', { value: new ProcessOutput(ended) });
  }
  get ok(): boolean { return false; }
  text(): string { return this.output.text(); }
  lines(): string[] { return this.output.lines(); }
  json(): any { return this.output.json(); }
  buffer(): Uint8Array { return this.output.buffer(); }
}

function linesOf(text: string): string[] {
  const lines = text.split(/\r?\n/);
  if (lines[lines.length - 1] === '') lines.pop();
  return lines;
}

const graceMs = 2000;
let commands = 0;
let pipes = 0;

/** A command: a promise of its output that can be adjusted until it starts, which is when the present code yields. */
export class ProcessPromise implements PromiseLike<ProcessOutput> {
  private readonly id = `command-${++commands}`;
  private readonly options: Options;
  private readonly result: Promise<ProcessOutput>;
  private started = false;
  private ended = false;
  private observed = false;
  private killed?: string;
  private timedOut?: number;
  private readonly at: string;
  private stdinPipe?: string;
  private source?: ProcessPromise; // whose stdout this reads
  private readonly tees: string[] = [];
  private readonly files: string[] = [];
  private piped = false;
  private copied?: Promise<void>;
  private command?: Command; // known once its values are

  constructor(private readonly scope: ShellScope, private readonly composed: Command | Promise<Command>, options: Options) {
    this.options = { ...options };
    this.at = new Error('command').stack ?? '';
    this.result = Promise.resolve().then(() => this.run());
    // A command that nobody awaits must not take the whole job down when it fails or is killed with its step.
    this.result.catch((e) => {
      if (!this.observed && !scope.signal?.aborted) log(scope.stepIndex, `[kici] A command that nobody awaited failed: ${e.message}`);
    });
  }

  then<A = ProcessOutput, B = never>(ok?: ((v: ProcessOutput) => A | PromiseLike<A>) | null, failed?: ((e: any) => B | PromiseLike<B>) | null): Promise<A | B> {
    return this.output.then(ok, failed);
  }
  catch<B>(failed: (e: any) => B | PromiseLike<B>): Promise<ProcessOutput | B> { return this.output.catch(failed); }
  finally(fn: () => void): Promise<ProcessOutput> { return this.output.finally(fn); }

  private get output(): Promise<ProcessOutput> {
    this.observed = true;
    return this.result;
  }

  nothrow(on = true): this { this.options.nothrow = on; return this; }
  quiet(on = true): this { this.options.quiet = on; return this; }
  verbose(on = true): this { this.options.quiet = !on; return this; }
  timeout(time: number | string, signal?: string): this {
    this.options.timeout = time;
    if (signal !== undefined) this.options.timeoutSignal = signal;
    return this;
  }
  stdio(stdin: Stdio, stdout: Stdio = 'pipe', stderr: Stdio = 'pipe'): this { this.options.stdio = [stdin, stdout, stderr]; return this; }
  async text(): Promise<string> { return (await this.output).text(); }
  async lines(): Promise<string[]> { return (await this.output).lines(); }
  async json(): Promise<any> { return (await this.output).json(); }
  async buffer(): Promise<Uint8Array> { return (await this.output).buffer(); }
  get exitCode(): Promise<number | null> { return this.nothrow().output.then((o) => o.exitCode); }

  /** Ends the command and all it started, after a moment by force. */
  async kill(signal = this.options.killSignal ?? 'SIGTERM'): Promise<void> {
    checkSignal(signal);
    if (this.ended) return;
    this.killed = signal;
    if (this.started) await host.call('signal', { id: this.id, signal, graceMs: signal === 'SIGKILL' ? 0 : graceMs });
  }

  /** What the command reads, to be written piece by piece. Asking for it is what makes the command wait for it. */
  get stdin(): { write(data: unknown): Promise<boolean>; end(data?: unknown): Promise<boolean> } {
    if (this.stdinPipe === undefined) {
      this.unstarted('stdin');
      this.stdinPipe = `pipe-${++pipes}`;
    }
    const send = (data: unknown, end: boolean) => host.call('write', { pipe: this.stdinPipe, ...inputOf(data, 'text', 'bytes'), end });
    return { write: (data) => send(data, false), end: (data) => send(data, true) };
  }

  private unstarted(what: string): void {
    if (this.started) throw new Error(`${what} must be asked for before the command starts, which is at the next await`);
  }

  /**
   * Gives what this command prints to another one, to a file (its path) or to what has a method `write`. The result is
   * the other command; it fails when either of them does.
   */
  pipe(to: any, ...values: unknown[]): any {
    if (Array.isArray(to) && Array.isArray((to as any).raw)) to = new ProcessPromise(this.scope, composed(to as any, values), this.options.quiet ? { quiet: true } : {});
    if (to instanceof ProcessPromise) {
      for (let one: ProcessPromise | undefined = this; one; one = one.source) if (one === to) throw new TypeError('a command cannot be piped into itself');
      to.unstarted('pipe() into a command');
      to.source = this;
      to.stdinPipe = this.tee();
      this.piped = true;
      this.observed = true;
      return to;
    }
    if (typeof to === 'string') {
      this.unstarted('the file of pipe()');
      this.files.push(to);
      this.piped = true;
      return this;
    }
    if (typeof to?.write !== 'function') throw new TypeError('pipe() takes a command, the path of a file, or what has a method write');
    this.piped = true;
    this.copied = this.copyTo(to);
    return this;
  }

  private async copyTo(to: { write(text: string): unknown }): Promise<void> {
    for await (const line of this.printed()) to.write(`${line}\n`);
  }

  // tee makes a pipe that gets what this command prints, from the beginning.
  private tee(): string {
    const pipe = `pipe-${++pipes}`;
    if (!this.started) this.tees.push(pipe);
    else void this.join(pipe);
    return pipe;
  }

  // join connects a pipe to a command that is at work, or gives it what one that has ended has printed.
  private async join(pipe: string): Promise<void> {
    if (!this.ended && (await host.call('tee', { id: this.id, pipe }))) return;
    const output = await this.result.catch((e) => e);
    await host.call('write', { pipe, text: output?.stdout ?? '', end: true });
  }

  /** The lines of stdout, as they come. The loop ends when the command does, and throws when that failed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void> {
    this.observed = true;
    yield* this.printed();
    await this.result;
  }

  private async *printed(): AsyncGenerator<string, void> {
    const pipe = this.tee();
    let done = false;
    try {
      while (!done) {
        const got: { lines?: string[]; done: boolean } = await host.call('lines', { pipe });
        done = got.done;
        yield* got.lines ?? [];
      }
    } finally {
      if (!done) await host.call('lines', { pipe, end: true });
    }
  }

  // abandon lets nobody wait for a command that is not started.
  private abandon(): void {
    this.started = this.ended = true;
    for (const pipe of this.tees) void host.call('write', { pipe, end: true });
    if (this.stdinPipe !== undefined) void host.call('lines', { pipe: this.stdinPipe, end: true });
  }

  private checkStart(): void {
    for (const signal of [this.scope.signal, this.options.signal]) if (signal?.aborted) throw new AbortError(`command not started: ${reasonOf(signal)}`);
    if (this.killed) throw new AbortError('command not started: it was killed');
  }

  private async run(): Promise<ProcessOutput> {
    const { scope, options } = this;
    let spec: object;
    try {
      this.command = await this.composed;
      checkOptions(options);
      this.checkStart();
      spec = this.spec();
    } catch (e) {
      this.abandon();
      throw e;
    }
    this.started = true;
    const signals = [scope.signal, options.signal];
    const onAbort = () => void this.kill();
    for (const signal of signals) signal?.addEventListener('abort', onAbort);
    const ms = options.timeout === undefined ? 0 : milliseconds(options.timeout);
    const limit = ms > 0 ? timer(ms) : undefined;
    const spawn: Promise<Ended> = host.call('spawn', spec);
    const settled = spawn.then(() => {}, () => {});
    scope.running.add(settled);
    void limit?.passed.then((passed) => {
      if (!passed || this.ended) return;
      this.timedOut = ms;
      void this.kill(options.timeoutSignal);
    });
    try {
      const ended = await spawn;
      this.ended = true;
      return await this.finish(ended);
    } finally {
      this.ended = true;
      scope.running.delete(settled);
      for (const signal of signals) signal?.removeEventListener('abort', onAbort);
      limit?.cancel();
    }
  }

  private spec(): object {
    const { scope, options } = this;
    const { stdio = [] } = options;
    const [stdin, stdout, stderr] = typeof stdio === 'string' ? [stdio, stdio, stdio] : stdio;
    const input = stdin === 'ignore' ? undefined : options.stdin ?? options.input;
    return {
      id: this.id, script: this.command!.script, cwd: within(scope.cwd, options.cwd), env: merged(scope.env, options.env),
      stepIndex: scope.stepIndex, quiet: options.quiet ?? options.verbose === false,
      ...(this.stdinPipe !== undefined ? { stdinPipe: this.stdinPipe } : input !== undefined && inputOf(input, 'stdin', 'input')),
      ...(this.tees.length > 0 && { tees: this.tees }), ...(this.files.length > 0 && { files: this.files }), ...(this.piped && { piped: true }),
      ...(stdout && stdout !== 'pipe' && { stdout }), ...(stderr && stderr !== 'pipe' && { stderr }),
    };
  }

  private async finish(ended: Ended): Promise<ProcessOutput> {
    await this.copied;
    const passed = ended.exitCode === 0 || this.options.nothrow;
    if (passed && this.source) await this.sourceEnded();
    if (passed) return new ProcessOutput(ended);
    const error = new ProcessError(this.message(ended), ended);
    error.stack = `${error.name}: ${error.message}\n${this.at}`;
    throw error;
  }

  // A command whose reader has seen enough is told so by a signal; that is no failure.
  private async sourceEnded(): Promise<void> {
    try {
      await this.source!.result;
    } catch (e: any) {
      if (e?.signal !== 'SIGPIPE' && e?.exitCode !== 141) throw e;
    }
  }

  private message(ended: Ended): string {
    const how = this.timedOut !== undefined
      ? `timed out after ${this.timedOut}ms`
      : ended.exitCode === null ? `was ended by ${ended.signal ?? 'a signal'}` : `failed with exit code ${ended.exitCode}`;
    // The last lines say why, as a rule; the whole output is in the log.
    const said = linesOf(ended.stderr.trim() ? ended.stderr : ended.stdout).slice(-5).join('\n');
    return `Command ${how}: ${this.command!.shown}${said ? `\n${said}` : ''}`;
  }
}

/** What a command is to read, under the name of the field that takes it as text or as base64. */
function inputOf(value: unknown, text: string, bytes: string): object {
  if (value === undefined || value === null) return {};
  if (typeof value === 'string') return { [text]: value };
  if (value instanceof ProcessOutput) return { [bytes]: base64Encode(value.buffer()) };
  const raw = bytesOf(value);
  if (raw === undefined) throw new TypeError('the input of a command must be text, bytes or the output of another command');
  return { [bytes]: base64Encode(raw) };
}

// within gives the path of a folder that may be relative to another one.
function within(folder: string, path: string | undefined): string {
  if (path === undefined) return folder;
  return /^([/\\]|[A-Za-z]:)/.test(path) ? path : `${folder}/${path}`;
}

function reasonOf(signal: Signal): string {
  return signal.reason?.message ?? String(signal.reason);
}

function merged(env: Record<string, string>, over: Options['env']): Record<string, string> {
  const out: Record<string, string> = { ...env };
  for (const [k, v] of Object.entries(over ?? {})) {
    if (v === undefined || v === null) delete out[k];
    else out[k] = String(v);
  }
  return out;
}

// composed makes the command of a template. Values that are promises, such as other commands, are awaited first.
function composed(parts: readonly string[], values: readonly unknown[]): Command | Promise<Command> {
  return values.some(holdsPromise) ? settled(values).then((all) => compose(parts, all)) : compose(parts, values);
}

const holdsPromise = (value: any): boolean => (Array.isArray(value) ? value.some(holdsPromise) : typeof value?.then === 'function');

function settled(values: readonly unknown[]): Promise<unknown[]> {
  return Promise.all(values.map((v) => (Array.isArray(v) ? settled(v) : v)));
}

/** Makes a `$` for a scope. */
export function shell(scope: ShellScope, defaults: Options = {}): any {
  return (first: any, ...values: unknown[]): any => {
    if (Array.isArray(first) && Array.isArray((first as any).raw)) {
      if (first.some((part) => part === undefined)) throw new TypeError('the command holds an escape sequence that JavaScript does not know; write \\\\ for a backslash');
      return new ProcessPromise(scope, composed(first, values), defaults);
    }
    if (first === null || typeof first !== 'object') throw new TypeError('$ is a template tag: $`command`, or takes options: $({cwd})`command`');
    checkOptions(first);
    return shell(scope, { ...defaults, ...first });
  };
}
