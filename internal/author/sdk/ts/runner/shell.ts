// `$`: commands as zx has them. A value in a template never becomes part of the command's text: it is put into a shell
// variable and the text refers to that, so no value can be read as a command, whatever quotes stand around it.

import { host, log, timer } from './host';
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

interface Options {
  cwd?: string;
  /** Added to the step's environment; undefined takes a variable away. */
  env?: Record<string, string | undefined>;
  quiet?: boolean;
  nothrow?: boolean;
  stdin?: string;
  input?: string;
  timeout?: number;
}

interface Ended {
  stdout: string;
  stderr: string;
  exitCode: number | null;
  signal?: string;
}

/** How a command ended. */
export class ProcessOutput {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  constructor(ended: Ended) {
    this.stdout = ended.stdout;
    this.stderr = ended.stderr;
    this.exitCode = ended.exitCode;
    this.signal = ended.signal ?? null;
  }
  get ok(): boolean { return this.exitCode === 0; }
  text(): string { return this.stdout; }
  lines(): string[] { return linesOf(this.stdout); }
  json(): any { return JSON.parse(this.stdout); }
  valueOf(): string { return this.stdout.trimEnd(); }
  toString(): string { return this.stdout; }
}

/** The error of a command that failed. It carries what ProcessOutput has. */
export class ProcessError extends Error {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  constructor(message: string, ended: Ended) {
    super(message);
    this.name = 'ProcessError';
    this.stdout = ended.stdout;
    this.stderr = ended.stderr;
    this.exitCode = ended.exitCode;
    this.signal = ended.signal ?? null;
  }
}

function linesOf(text: string): string[] {
  const lines = text.split(/\r?\n/);
  if (lines[lines.length - 1] === '') lines.pop();
  return lines;
}

const graceMs = 2000;
let commands = 0;

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

  constructor(private readonly scope: ShellScope, private readonly command: Command, options: Options) {
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
  timeout(ms: number): this { this.options.timeout = ms; return this; }
  async text(): Promise<string> { return (await this.output).text(); }
  async lines(): Promise<string[]> { return (await this.output).lines(); }
  async json(): Promise<any> { return (await this.output).json(); }
  get exitCode(): Promise<number | null> { return this.nothrow().output.then((o) => o.exitCode); }

  /** Ends the command and all it started, after a moment by force. */
  async kill(signal = 'SIGTERM'): Promise<void> {
    if (this.ended) return;
    this.killed = signal;
    if (this.started) await host.call('signal', { id: this.id, signal, graceMs: signal === 'SIGKILL' ? 0 : graceMs });
  }

  private async run(): Promise<ProcessOutput> {
    const { scope, options } = this;
    if (scope.signal?.aborted) throw new AbortError(`command not started: ${reasonOf(scope.signal)}`);
    if (this.killed) throw new AbortError('command not started: it was killed');
    const onAbort = () => void this.kill();
    scope.signal?.addEventListener('abort', onAbort);
    const limit = options.timeout && options.timeout > 0 ? timer(options.timeout) : undefined;
    this.started = true;
    const spawn: Promise<Ended> = host.call('spawn', {
      id: this.id, script: this.command.script, cwd: options.cwd ?? scope.cwd, env: merged(scope.env, options.env),
      stdin: options.stdin ?? options.input, stepIndex: scope.stepIndex, quiet: options.quiet ?? false,
    });
    const settled = spawn.then(() => {}, () => {});
    scope.running.add(settled);
    void limit?.passed.then((passed) => {
      if (!passed || this.ended) return;
      this.timedOut = options.timeout;
      void this.kill();
    });
    try {
      return this.finish(await spawn);
    } finally {
      this.ended = true;
      scope.running.delete(settled);
      scope.signal?.removeEventListener('abort', onAbort);
      limit?.cancel();
    }
  }

  private finish(ended: Ended): ProcessOutput {
    if (ended.exitCode === 0 || this.options.nothrow) return new ProcessOutput(ended);
    const error = new ProcessError(this.message(ended), ended);
    error.stack = `${error.name}: ${error.message}\n${this.at}`;
    throw error;
  }

  private message(ended: Ended): string {
    const how = this.timedOut !== undefined
      ? `timed out after ${this.timedOut}ms`
      : ended.exitCode === null ? `was ended by ${ended.signal ?? 'a signal'}` : `failed with exit code ${ended.exitCode}`;
    // The last lines say why, as a rule; the whole output is in the log.
    const said = linesOf(ended.stderr.trim() ? ended.stderr : ended.stdout).slice(-5).join('\n');
    return `Command ${how}: ${this.command.shown}${said ? `\n${said}` : ''}`;
  }
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

/** A script for the shell, and how it is shown to people. */
interface Command {
  script: string;
  shown: string;
}

/** Makes the script of a template: literal parts as they are, values as variables. */
export function compose(parts: readonly string[], values: readonly unknown[]): Command {
  const quotes = new Quotes();
  const variables: string[] = [];
  let body = '', shown = '';
  parts.forEach((part, i) => {
    body += part;
    shown += part;
    quotes.read(part);
    if (i >= values.length) return;
    const texts = textsOf(values[i], i + 1);
    const names = texts.map((text) => {
      variables.push(`__k${variables.length}=${quote(text)}`);
      return `\${__k${variables.length - 1}}`;
    });
    body += quotes.embed(names);
    shown += texts.map((t) => (/^[\w/.:=@%+,-]+$/.test(t) ? t : quote(t))).join(' ');
  });
  const head = variables.length ? `${variables.join(';')};` : '';
  // The command begins on a line of its own, so that a comment or a here-document in it stays what it is.
  return { script: `${head}\n${body}`, shown: firstLine(shown.trim()) };
}

function firstLine(text: string): string {
  const line = text.split('\n', 1)[0];
  return line.length > 200 || line.length < text.length ? `${line.slice(0, 200)} …` : line;
}

/** The texts that a value stands for. Whatever has no obvious text is refused rather than guessed. */
function textsOf(value: unknown, position: number): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => textsOf(one, position));
  if (value instanceof ProcessOutput) return [checked(value.stdout.replace(/\r?\n$/, ''), position)];
  switch (typeof value) {
    case 'string': return [checked(value, position)];
    case 'number': case 'boolean': case 'bigint': return [String(value)];
    case 'object':
      if (value !== null && value.toString !== Object.prototype.toString) return [checked(String(value), position)];
  }
  throw new TypeError(`value ${position} of a command is ${value === null ? 'null' : typeof value === 'object' ? 'an object' : typeof value}; text, a number, a boolean or a list of them is needed`);
}

function checked(text: string, position: number): string {
  if (text.includes('\0')) throw new TypeError(`value ${position} of a command holds a NUL character, which no argument can`);
  return text;
}

/** Quotes text for every POSIX shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Follows the author's own quotes through the literal parts, so that a value in them is written to fit. A wrong guess
 * (in a here-document, say) costs a stray quote in the output and never lets a value be run.
 */
class Quotes {
  private stack: ('"' | "'" | '(')[] = [];
  private escaped = false;
  private comment = false;
  private previous = '';

  read(part: string): void {
    for (const c of part) {
      this.step(c);
      this.previous = c;
    }
  }

  private step(c: string): void {
    const top = this.stack[this.stack.length - 1];
    if (this.escaped) { this.escaped = false; return; }
    if (this.comment) { this.comment = c !== '\n'; return; }
    if (top === "'") { if (c === "'") this.stack.pop(); return; }
    if (c === '\\') this.escaped = true;
    else if (c === '"') { if (top === '"') this.stack.pop(); else this.stack.push('"'); }
    else if (c === '(' && this.previous === '$') this.stack.push('(');
    else if (top === '"') return;
    else if (c === "'") this.stack.push("'");
    else if (c === ')' && top === '(') this.stack.pop();
    else if (c === '#' && (this.previous === '' || /[\s;&|(]/.test(this.previous))) this.comment = true;
  }

  embed(names: string[]): string {
    this.escaped = false;
    this.previous = 'x';
    switch (this.stack[this.stack.length - 1]) {
      case '"': return names.join(' ');
      case "'": return `'"${names.join(' ')}"'`;
    }
    return names.map((n) => `"${n}"`).join(' ');
  }
}

/** Makes a `$` for a scope. */
export function shell(scope: ShellScope, defaults: Options = {}): any {
  return (first: any, ...values: unknown[]): any => {
    if (Array.isArray(first) && Array.isArray((first as any).raw)) {
      if (first.some((part) => part === undefined)) throw new TypeError('the command holds an escape sequence that JavaScript does not know; write \\\\ for a backslash');
      return new ProcessPromise(scope, compose(first, values), defaults);
    }
    if (first === null || typeof first !== 'object') throw new TypeError('$ is a template tag: $`command`, or takes options: $({cwd})`command`');
    return shell(scope, { ...defaults, ...first });
  };
}
