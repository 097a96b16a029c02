// The SDK's half that the programs use: the runner of a job and the compiler. Authors never import it. Values that a
// workflow's functions read lazily (outputs of jobs and steps) live here, in the one instance of this module that a
// bundle has, so that the author's proxies and the program see the same maps.

import { WhenKeywords } from './needs';
import { checkVariableName } from './normalize';
import { shown } from './report';

export { copied, siteOf } from './site';
export { checkVariableName, checkVariables, normalizeApproval, normalizeCacheSpecs, normalizeRetry } from './normalize';
export { describeJob, describeWorkflow, flattenSteps, nameJobs } from './describe';
export { combinationsOf, contextsOf, maxCombinations, readMatrix, variablesOf } from './describe-job';
export { applyIncludeExclude, expandMatrix } from './matrix';
export { resolveWhen } from './needs';
export { Report, matcherOf, noResolver, shown, type LabelReading, type Problem, type SourceLocation } from './report';
export { kindOf } from './schema';
export { suggest } from './spelling';
export { validateDrift, validateSchema, validateOutputs } from './schema-tools';

/** Outputs by step name, of this job or of another. */
export type StepOutputs = Record<string, unknown>;

let stepOutputs: Record<string, unknown> = {};
let upstream: Record<string, unknown> = {};
let stepNames: Map<object, string> = new Map();
let kiciApi: any;

/**
 * Sets the map of this job's own step outputs, by step name. `outputsOf()` and `step.result` read it. The caller keeps
 * the map and adds to it as steps end.
 */
export function setStepOutputsMap(outputs: Record<string, unknown>): void {
  stepOutputs = outputs;
}

/** Sets the outputs of upstream jobs by base name, as `upstreamJobOutputs` of the dispatch has them. */
export function setJobOutputsMap(outputs: Record<string, unknown> | undefined): void {
  upstream = outputs ?? {};
}

/** Sets the names of steps, so that a step without a name of its own can be referred to by its object or function. */
export function setStepRefMap(refs: Map<object, string>): void {
  stepNames = refs;
}

/** Sets the API object that helpers without a context of their own use (`waitForHostAlive`, `restartHost`). */
export function setKiciApi(api: unknown): void {
  kiciApi = api;
}

/** The API object of the running step. Throws outside of one. */
export function currentKiciApi(): any {
  if (!kiciApi) throw new Error('this helper works inside a running step only');
  return kiciApi;
}

/** `ctx.outputsOf(ref)`: outputs of an earlier step of this job, by step object, function or name; undefined if none. */
export function outputsOf(ref: unknown): unknown {
  return stepOutputs[stepName(ref)];
}

function stepName(ref: unknown): string {
  if (typeof ref === 'string') return ref;
  const known = ref !== null && (typeof ref === 'object' || typeof ref === 'function') ? stepNames.get(ref as object) : undefined;
  return known ?? (ref as any)?.name ?? '';
}

/**
 * `ctx.jobOutputs(ref)`: outputs of an upstream job by job object, name or `{name}`. A plain job gives its outputs by
 * step, a matrix `{byMatrix, merged}`, a host fan-out `{byHost, summary}`. The outputs of a job object written with
 * `run` are given flat, since its one step has no name that an author knows.
 */
export function jobOutputs(ref: unknown): unknown {
  const name = typeof ref === 'string' ? ref : (ref as any)?.name;
  const outputs = upstream[name];
  return (ref as any)?._tag === 'Job' && (ref as any).run ? flatten(outputs) : outputs;
}

const onlyStep = 'step-1';

function flatten(outputs: any): unknown {
  if (outputs === null || typeof outputs !== 'object') return outputs;
  const flat = (one: any) => (one !== null && typeof one === 'object' && onlyStep in one ? one[onlyStep] : one);
  if (outputs.byMatrix) return { ...outputs, byMatrix: mapValues(outputs.byMatrix, flat), merged: flat(outputs.merged) };
  if (outputs.byHost) return { ...outputs, byHost: mapValues(outputs.byHost, flat), summary: flatSummary(outputs.summary) };
  return flat(outputs);
}

// flatSummary lists, for each output of the one step, its values on all hosts that gave it.
function flatSummary(summary: any): any {
  const list = summary?.outputs?.[onlyStep];
  if (!Array.isArray(list)) return summary;
  const outputs: Record<string, unknown[]> = {};
  for (const one of list) for (const [key, value] of Object.entries(one ?? {})) (outputs[key] ??= []).push(value);
  return { ...summary, outputs };
}

function mapValues(map: Record<string, unknown>, f: (v: any) => unknown): Record<string, unknown> {
  return Object.fromEntries(Object.entries(map).map(([k, v]) => [k, f(v)]));
}

/** What `job.result` reads: one step's outputs, or one output of a job written with `run`. Never throws. */
export function readJobResult(job: any, key: string): unknown {
  const outputs = jobOutputs(job) as any;
  const merged = outputs?.merged ?? outputs;
  return merged?.[key] ?? (job.run ? undefined : {});
}

// ---- secrets ----

/** What the host of a step must offer to `ctx.secrets`. */
export interface SecretsHost {
  /** Puts a variable into the environment of later steps. */
  setEnv(name: string, value: string): void;
  /** Takes a variable of exposeFile away again. */
  unsetEnv(name: string): void;
  /** Writes a private file of that mode, makes its content masked, gives its path and removes it after the step. */
  writeFile(name: string, content: string, mode: number): Promise<string>;
  /** Reports a mounted secret. */
  reportMount(mount: { sources: string[]; target: string; kind: 'mountFile' | 'exposeFile'; envVar?: string }): void;
}

export interface SecretsOptions {
  /** Flat secrets of the dispatch; contexts overlay them in their order. */
  secrets?: Record<string, string>;
  namespacedSecrets?: Record<string, Record<string, string>>;
  /** Where a secret came from, by key. */
  meta?: Record<string, { backend: string; scope: string }>;
  host: SecretsHost;
}

/** The error of a secret that is not there. It lists the keys that are, never values. */
export class SecretNotFoundError extends Error {
  readonly key: string;
  constructor(key: string, available: string[]) {
    super(
      `Secret "${key}" not found. Available keys: ${available.length ? available.join(', ') : '(none)'}. ` +
        `Use ctx.secrets.has('${key}') to check existence, or await ctx.secrets.get('${key}') in a try/catch.`,
    );
    this.name = 'SecretNotFoundError';
    this.key = key;
  }
}

/** The flat map of secrets a job sees: those of the dispatch, then each context over them. */
export function flatSecrets(o: Pick<SecretsOptions, 'secrets' | 'namespacedSecrets'>): Record<string, string> {
  return Object.assign({}, o.secrets, ...Object.values(o.namespacedSecrets ?? {}));
}

/** The context that gave the value of a key: the last that has it. '' for a secret of no context. */
function contextOf(o: SecretsOptions, key: string): string {
  return Object.entries(o.namespacedSecrets ?? {}).filter(([, secrets]) => Object.hasOwn(secrets, key)).at(-1)?.[0] ?? '';
}

/**
 * Makes `ctx.secrets` of one step. `accessed()` is not for authors: the sorted names that were read, for
 * `secretsAccessed`; `dispose()` takes variables of exposeFile away and is called after the step in every outcome.
 */
export function createStepSecrets(o: SecretsOptions): { api: any; accessed(): string[]; dispose(): void } {
  const values = flatSecrets(o);
  const read = new Set<string>();
  const exposedFiles: string[] = [];
  const take = (key: string): string => {
    if (!Object.hasOwn(values, key)) throw new SecretNotFoundError(key, Object.keys(values));
    read.add(key);
    return values[key];
  };
  const mount = async (spec: any, kind: 'mountFile' | 'exposeFile', envVar?: string) => {
    const { sources, divider = '', mode = 0o600, name } = spec ?? {};
    if (!Array.isArray(sources) || sources.length === 0 || !sources.every((s) => typeof s === 'string')) throw new Error(`secrets.${kind} needs a non-empty list of sources`);
    if (typeof divider !== 'string') throw new Error(`secrets.${kind}: divider must be text, not ${shown(divider)}`);
    if (!Number.isInteger(mode) || mode < 0 || mode > 0o777) throw new Error(`secrets.${kind}: mode must be a number such as 0o600, not ${shown(mode)}`);
    const file = name ?? sources[0].replace(/[^\w.-]/g, '_');
    if (typeof file !== 'string' || !/^[^/\\]+$/.test(file) || file === '.' || file === '..') throw new Error(`secrets.${kind}: "${file}" is not a plain file name`);
    const path = await o.host.writeFile(file, sources.map(take).join(divider), mode);
    o.host.reportMount({ sources, target: path, kind, ...(envVar && { envVar }) });
    return { path };
  };
  const api = {
    get: async (key: string) => take(key),
    has: (key: string) => Object.hasOwn(values, key),
    list: () => Object.keys(values).sort(),
    // Where the server does not tell, the context is known that gave the value.
    getMeta: (key: string) =>
      Object.hasOwn(values, key) ? { value: take(key), ...(o.meta?.[key] ?? { backend: '', scope: contextOf(o, key) }) } : null,
    expose: async (key: string, as: string = key) => {
      checkVariableName(as, 'secrets.expose');
      o.host.setEnv(as, take(key));
    },
    mountFile: (spec: any) => mount(spec, 'mountFile'),
    exposeFile: async (envVar: string, spec: any) => {
      checkVariableName(envVar, 'secrets.exposeFile');
      const mounted = await mount(spec, 'exposeFile', envVar);
      o.host.setEnv(envVar, mounted.path);
      exposedFiles.push(envVar);
      return mounted;
    },
  };
  return {
    api,
    accessed: () => [...read].sort(),
    dispose: () => exposedFiles.splice(0).forEach((name) => o.host.unsetEnv(name)),
  };
}

// ---- needs ----

/** One entry of a job's needs as a lock file has it. */
export type NeedsEntry = string | { name: string; runOn: string[] } | { group: string; runOn: string[] };

export interface NeedsInput {
  needs?: NeedsEntry[];
  upstreamJobOutputs?: Record<string, any>;
  upstreamJobStatuses?: Record<string, string>;
  /** Names of the jobs of each generator group, where known. */
  groups?: Record<string, string[]>;
}

/**
 * Makes `ctx.needs`. A plain upstream job gives `{result, status}`; a matrix, a host fan-out or a group gives a list of
 * `{name, result, status}` sorted by name. Children are known by `<base> (`, their outputs by the text in the brackets.
 * undefined when the job needs nothing.
 */
export function buildNeedsContext(o: NeedsInput): Record<string, unknown> | undefined {
  if (!o.needs?.length) return undefined;
  const statuses = o.upstreamJobStatuses ?? {};
  const outputs = o.upstreamJobOutputs ?? {};
  const context: Record<string, unknown> = {};
  for (const entry of o.needs) {
    if (typeof entry === 'object' && 'group' in entry) {
      const names = o.groups?.[entry.group] ?? [];
      context[entry.group] = names.flatMap((n) => childrenOf(n, statuses, outputs) ?? [plain(n, statuses, outputs)]).sort(byName);
      continue;
    }
    const base = typeof entry === 'string' ? entry : entry.name;
    const children = childrenOf(base, statuses, outputs);
    if (children) context[base] = children.sort(byName);
    else {
      const { result, status } = plain(base, statuses, outputs);
      context[base] = { result, status };
    }
  }
  return context;
}

interface NeedsChild { name: string; result: unknown; status: string }

function byName(a: NeedsChild, b: NeedsChild): number {
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

function plain(name: string, statuses: Record<string, string>, outputs: Record<string, any>): NeedsChild {
  return { name, result: outputs[name] ?? partOf(name, outputs) ?? {}, status: statuses[name] };
}

// partOf finds the outputs of a child by its whole name: they are kept with those of its siblings.
function partOf(child: string, outputs: Record<string, any>): unknown {
  const base = Object.keys(outputs).find((b) => child.startsWith(`${b} (`) && child.endsWith(')'));
  return base === undefined ? undefined : partsOf(outputs[base])[child.slice(base.length + 2, -1)];
}

const partsOf = (outputs: any): Record<string, unknown> => outputs?.byMatrix ?? outputs?.byHost ?? {};

function childrenOf(base: string, statuses: Record<string, string>, outputs: Record<string, any>): NeedsChild[] | undefined {
  const names = Object.keys(statuses).filter((n) => n.startsWith(`${base} (`) && n.endsWith(')'));
  if (names.length === 0) return undefined;
  const parts = partsOf(outputs[base]);
  return names.map((name) => ({ name, result: parts[name.slice(base.length + 2, -1)] ?? {}, status: statuses[name] }));
}

// ---- rules ----

/** Whether all rules passed; if not, which one ended it, and its error if it threw. */
export interface RulesVerdict {
  passed: boolean;
  label?: string;
  error?: unknown;
}

/** Evaluates rules in order; the first that is false or throws ends it. The context is `{event, changedFiles, …}`. */
export async function evaluateRules(rules: any[] | undefined, context: unknown): Promise<RulesVerdict> {
  for (const rule of rules ?? []) {
    try {
      if (!(await rule.check(context))) return { passed: false, label: rule.label };
    } catch (error) {
      return { passed: false, label: rule.label, error };
    }
  }
  return { passed: true };
}

/** The keywords that a `when` may be, for messages. */
export const whenKeywords = Object.keys(WhenKeywords);
