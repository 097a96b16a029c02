// The types of `@kici-dev/sdk`, fourth part: helpers and schemas.

declare module '@kici-dev/sdk' {
  // ---------------------------------------------------------------- waiting, checking

  export interface WaitOptions<T> {
    /** Said when time runs out. */
    name?: string;
    /** Asked until it gives something other than null or undefined. */
    check: () => Awaitable<T | null | undefined>;
    /** Default 2000. */
    intervalMs?: number;
    /** Default 60000. */
    timeoutMs?: number;
    /** Pause before the first question. Default 0. */
    initialDelayMs?: number;
    /** Whether a check that throws counts as "not yet". Default true. */
    swallowErrors?: boolean;
    /** Gets the value; what it gives takes its place. */
    onSuccess?: (value: T) => any;
    /** Gives the value when time runs out, in place of the error. */
    onTimeout?: (error: WaitForTimeoutError) => any;
    /** Ends the wait when it is aborted, such as `signal` of the step. */
    signal?: any;
  }
  /** How a wait ended. */
  export interface WaitResult<T> {
    /** Whether there was an answer, or onTimeout gave the value. */
    outcome: 'succeeded' | 'timed-out';
    /** What the check gave. */
    value: T;
    /** Milliseconds. */
    elapsedMs: number;
    /** How often the check was asked. */
    attempts: number;
  }
  /** Asks until there is an answer, a last time when the time runs out. */
  export function waitFor<T>(options: WaitOptions<T>): Promise<WaitResult<T>>;
  /** A step that waits; an object that its check gives becomes its outputs. */
  export function waitForStep<T>(
    name: string,
    options: Omit<WaitOptions<T>, 'check' | 'name' | 'signal'> & { check: (ctx: StepContext) => Awaitable<T | null | undefined> } & Omit<StepOptions, 'run' | 'check'>,
  ): Step;
  /** Waits until a host is live again: asks every 3 seconds for 5 minutes. */
  export function waitForHostAlive(agentId: string, options?: { intervalMs?: number; timeoutMs?: number }): Promise<any>;
  /**
   * Asks for a reboot of this host, which follows once the job has ended; with the `agentId` of another host it waits until that
   * one is live. Whether this one is back a job on another host can see, with `waitForHostAlive`.
   */
  export function restartHost(options?: { deadlineMs?: number; agentId?: string; intervalMs?: number; timeoutMs?: number }): Promise<any>;
  /** The error of a wait whose time ran out; its cause is what the last check threw. */
  export class WaitForTimeoutError extends Error {
    readonly attempts: number;
    readonly timeoutMs: number;
  }
  /** Inside a step: looks, and changes only what is not as it should be. */
  export function idempotent<D, R>(options: {
    check: () => Awaitable<D | null>;
    apply: (drift: D) => Awaitable<R>;
  }): Promise<{ changed: boolean; drift: D | null; result: R | undefined }>;
  /** A step made of `idempotent`. It takes no part in check mode. */
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
  /** The error of a secret that is not there. It names the keys that are. */
  export class SecretNotFoundError extends Error {
    readonly key: string;
  }

  // ---------------------------------------------------------------- matrices and graphs

  /** All combinations of a matrix, in the order of servers. */
  export function expandMatrix(matrix: string[] | Record<string, string[]>): Record<string, string>[];
  /** Takes combinations away, then adds those that are not there. */
  export function applyIncludeExclude(
    all: Record<string, string>[], include?: Record<string, string>[] | null, exclude?: Record<string, string>[] | null,
  ): Record<string, string>[];
  /** Mistakes of a graph of jobs: needs that do not exist, jobs that need themselves, circles. */
  export function validateDag(nodes: { name: string; needs?: string[] }[]): { code: string; node: string; message: string; suggestion?: string }[];
  /** An approval as a lock file has it. */
  export function normalizeApproval(approval: Approval | undefined):
    | { clauses: Approver[]; reason?: string; timeoutSeconds?: number; when: 'always' | 'drift' }
    | undefined;

  // ---------------------------------------------------------------- schemas

  /** What a value must be. Schemas of zod 4 are accepted as well. */
  export interface Schema<T> {
    /** Reads a value, or tells what is wrong with it. */
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

  /** The error of a value that does not fit its schema. */
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
