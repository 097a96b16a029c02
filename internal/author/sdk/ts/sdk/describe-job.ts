// A job as a lock file has it.

import { blameOf, siteOf } from './site';
import { checkHooks, describeNeeds, duration, flags, holdable, text, warnUnknown } from './describe';
import { describeRules, describeSteps } from './describe-steps';
import { readRunsOn, readRunsOnAll, type LabelMatcher } from './labels';
import { applyIncludeExclude, expandMatrix } from './matrix';
import { cacheOptions, checkInit, checkVariables, initOptions, normalizeApproval, normalizeCacheSpecs } from './normalize';
import { checkResources } from './resources';
import { Report, compact, flag, shown } from './report';
import { kindOf } from './schema';
import { suggest } from './spelling';

type Fields = Record<string, unknown>;

const options = [
  'runsOn', 'runsOnAll', 'onUnreachable', 'includeUninitialized', 'maxParallel', 'failFast', 'steps', 'run', 'needs',
  'matrix', 'include', 'exclude', 'environment', 'environments', 'context', 'contexts', 'env', 'concurrencyGroup',
  'rules', 'onCancel', 'cleanup', 'onSuccess', 'onFailure', 'beforeStep', 'afterStep', 'checkout', 'container', 'init',
  'cache', 'resources', 'gracePeriod', 'timeout', 'approval', 'description', 'name', '_tag',
];

/** Combinations a matrix may have at most; servers refuse more. */
export const maxCombinations = 256;

/** Describes a job. `index` is its place among the workflow's jobs; `outer` is the place of the workflow, for a job
 * whose own place is not known. */
export function describeJob(job: any, index: number, report: Report, outer = ''): Fields {
  const stack = siteOf(job) || outer;
  const owner = `job '${job.name}'`;
  const blame = blameOf(job);
  if (blame) {
    report.error('E110', stack, `${owner} ${blame}`);
    return { _type: 'static', name: job.name };
  }
  warnUnknown(job, options, owner, stack, report);
  warnUnknown(job.cache, cacheOptions, `${owner}: cache`, stack, report);
  warnUnknownInit(job.init, owner, stack, report);
  checkCombinations(job, owner, stack, report);
  checkHooks(job, owner, stack, report);
  flags(job, ['checkout', 'failFast', 'includeUninitialized'], owner, stack, report);
  const needs = describeNeeds(job.needs, owner, stack, report);
  const groups = [...new Set(needs.flatMap((n: any) => (n.group ? [n.group] : [])))];
  const contexts = describeContexts(job, owner, stack, report);
  return compact({
    _type: 'static',
    name: job.name,
    ...describeTarget(job, owner, stack, report),
    needs,
    dependsOnGroups: groups.length ? groups : undefined,
    steps: describeSteps(job, owner, stack, report),
    ...describeMatrix(job, owner, stack, report),
    rules: describeRules(job.rules, owner, stack, (i) => index * 100 + i, report),
    description: text(job.description, `${owner}: description`, stack, report),
    checkout: job.checkout,
    cache: report.try('E110', stack, `${owner}: `, () => normalizeCacheSpecs(job.cache)),
    container: describeContainer(job.container, owner, stack, report),
    environments: contexts.length ? contexts : undefined,
    ...describeEnv(job, owner, stack, report),
    ...describeGroup(job, contexts, owner, stack, report),
    hasOnCancel: flag(job.onCancel),
    hasCleanup: flag(job.cleanup),
    hasOnSuccess: flag(job.onSuccess),
    hasOnFailure: flag(job.onFailure),
    hasBeforeStep: flag(job.beforeStep),
    hasAfterStep: flag(job.afterStep),
    gracePeriod: duration(job.gracePeriod, `${owner}: gracePeriod`, 'seconds', stack, report),
    timeout: duration(job.timeout, `${owner}: timeout`, 'milliseconds', stack, report),
    resources: report.try('E115', stack, `${owner}: `, () => checkResources(job.resources)),
    init: report.try('E110', stack, `${owner}: `, () => checkInit(job.init)),
    approval: report.try('E114', stack, `${owner}: `, () => holdable(normalizeApproval(job.approval))),
  });
}

function checkCombinations(job: any, owner: string, stack: string, report: Report): void {
  if ((job.runsOn === undefined) === (job.runsOnAll === undefined)) {
    report.error('E110', stack, `${owner} needs ${job.runsOn === undefined ? 'runsOn or runsOnAll' : 'either runsOn or runsOnAll, not both'}`);
  }
  const spellings = contextOptions.filter((name) => job[name] !== undefined && job[name] !== null);
  if (spellings.length > 1) report.error('E110', stack, `${owner}: ${spellings.slice().reverse().join(' and ')} exclude each other`);
  const needless = (names: string[], condition: string) => {
    for (const name of names) if (job[name] !== undefined) report.warn('W102', stack, `${owner}: ${name} has no effect without ${condition}`);
  };
  if (job.runsOnAll === undefined) needless(['onUnreachable', 'includeUninitialized'], 'runsOnAll');
  if (job.runsOnAll === undefined && job.matrix === undefined) needless(['maxParallel', 'failFast'], 'a matrix or runsOnAll');
  if (job.onUnreachable !== undefined && !['skip', 'fail', 'hold'].includes(job.onUnreachable)) report.error('E110', stack, `${owner}: onUnreachable must be 'skip', 'fail' or 'hold', not ${shown(job.onUnreachable)}`, suggest(job.onUnreachable, ['skip', 'fail', 'hold']));
  if (job.maxParallel !== undefined && !(Number.isSafeInteger(job.maxParallel) && job.maxParallel >= 1)) report.error('E110', stack, `${owner}: maxParallel must be a whole number of at least 1`);
}

function describeTarget(job: any, owner: string, stack: string, report: Report): Fields {
  const { label } = report.resolver;
  const one = job.runsOn === undefined ? undefined : report.try('E113', stack, `${owner}: `, () => readRunsOn(job.runsOn, label));
  const all = job.runsOnAll === undefined ? undefined : report.try('E113', stack, `${owner}: `, () => readRunsOnAll(job.runsOnAll, label));
  warnTarget(job, one, all, owner, stack, report);
  guard([...(one?.labels ?? []), ...(one?.exclude ?? []), ...(all?.include.flat() ?? []), ...(all?.exclude ?? [])], owner, stack, report);
  return {
    runsOn: one?.labels,
    excludeLabels: one?.exclude.length ? one.exclude : undefined,
    runsOnPick: one?.pick,
    runsOnAll: all,
    onUnreachable: job.onUnreachable,
    includeUninitialized: job.includeUninitialized,
    maxParallel: job.maxParallel,
    failFast: job.failFast,
  };
}

// warnTarget tells of what is written as in runsOnAll or runsOn and means something else in the other.
function warnTarget(job: any, one: ReturnType<typeof readRunsOn> | undefined, all: ReturnType<typeof readRunsOnAll> | undefined, owner: string, stack: string, report: Report): void {
  warnUnknown(Array.isArray(job.runsOn) ? undefined : job.runsOn, ['labels', 'exclude', 'pick'], `${owner}: runsOn`, stack, report);
  warnUnknown(Array.isArray(job.runsOnAll) ? undefined : job.runsOnAll, ['include', 'exclude'], `${owner}: runsOnAll`, stack, report);
  warnUnknown(job.runsOnAll?.include, ['all'], `${owner}: runsOnAll.include`, stack, report);
  const excluding = one?.labels.find((l) => l.kind === 'exact' && l.value.startsWith('!')) as { value: string } | undefined;
  if (excluding) report.warn('W105', stack, `${owner}: in runsOn the ! of '${excluding.value}' is part of the label`, `write runsOn: { labels: […], exclude: '${excluding.value.slice(1)}' }`);
  if (Array.isArray(job.runsOnAll) && all?.include.length === 0) report.warn('W105', stack, `${owner}: runsOnAll names no label that a host must have, so no host fits`, "add one, such as '*'");
}

function warnUnknownInit(init: any, owner: string, stack: string, report: Report): void {
  for (const one of Array.isArray(init) ? init : [init]) {
    warnUnknown(one, one?.mise === undefined ? initOptions.run : ['mise'], `${owner}: init`, stack, report);
    warnUnknown(one?.mise, initOptions.mise, `${owner}: init.mise`, stack, report);
    warnUnknown((one?.mise ?? one)?.cache, cacheOptions, `${owner}: init.cache`, stack, report);
  }
}

function guard(matchers: LabelMatcher[], owner: string, stack: string, report: Report): void {
  for (const m of matchers) {
    const reason = m.kind === 'regex' ? report.resolver.guard(m.source, m.flags) : undefined;
    if (reason) report.error('E113', stack, `${owner}: label ${reason}`, 'repeat nothing that is repeated already, and repeat at most 25 times in all');
  }
}

function describeMatrix(job: any, owner: string, stack: string, report: Report): Fields {
  if (job.matrix === undefined) {
    for (const name of ['include', 'exclude']) if (job[name] !== undefined) report.warn('W102', stack, `${owner}: ${name} has no effect without a matrix`);
    return {};
  }
  const adjust = (name: string) => report.try('E110', stack, `${owner}: `, () => combinationsOf(job[name], name));
  const [include, exclude] = [adjust('include'), adjust('exclude')];
  if (typeof job.matrix === 'function') {
    return { matrix: { _type: 'dynamic', source: { file: report.file, jobName: job.name } }, include, exclude };
  }
  const values = report.try('E110', stack, `${owner}: `, () => readMatrix(job.matrix));
  if (!values) return {};
  const product = Array.isArray(values) ? values.length : Object.values(values).reduce((n, v) => n * v.length, 1);
  const count = product + (include?.length ?? 0);
  if (count > maxCombinations) {
    report.error('E104', stack, `matrix for ${owner} expands to ${count} combinations (max ${maxCombinations})`, 'split the job, or make some of the values steps of one job');
    return {}; // a million values need not be handed on
  }
  if (applyIncludeExclude(expandMatrix(values), include, exclude).length === 0) report.error('E104', stack, `matrix for ${owner} expands to zero combinations`, 'a matrix needs at least one value that is not excluded');
  return { matrix: { _type: 'static', values }, include, exclude };
}

/** Reads a matrix whose values are known. */
export function readMatrix(matrix: any): string[] | Record<string, string[]> {
  if (Array.isArray(matrix)) return matrix.map((v) => scalar(v, 'matrix'));
  if (kindOf(matrix) !== 'object' || typeof matrix.then === 'function') throw new Error('matrix must be a list, a map of lists or a function');
  return Object.fromEntries(Object.entries(matrix).map(([name, list]) => {
    if (!Array.isArray(list)) throw new Error(`matrix dimension '${name}' must be a list`);
    return [name, list.map((v) => scalar(v, `matrix dimension '${name}'`))];
  }));
}

/** Reads the include or exclude of a matrix. */
export function combinationsOf(list: any, name: string): Record<string, string>[] | undefined {
  if (list === undefined) return undefined;
  if (!Array.isArray(list)) throw new Error(`${name} must be a list of maps`);
  return list.map((c) => {
    if (c === null || typeof c !== 'object' || Array.isArray(c)) throw new Error(`${name} must be a list of maps`);
    return Object.fromEntries(Object.entries(c).map(([k, v]) => [k, scalar(v, `${name} '${k}'`)]));
  });
}

function scalar(value: any, name: string): string {
  if (!['string', 'number', 'boolean'].includes(typeof value)) throw new Error(`${name} must hold texts, not ${shown(value)}`);
  return String(value);
}

function describeContainer(container: any, owner: string, stack: string, report: Report): unknown {
  const image = typeof container === 'object' ? container?.image : container;
  if (container !== undefined && (typeof image !== 'string' || image === '')) report.error('E110', stack, `${owner}: container must be an image or {image, env}`);
  warnUnknown(container, ['image', 'env'], `${owner}: container`, stack, report);
  if (kindOf(container) !== 'object' || container.env === undefined) return container;
  return { ...container, env: report.try('E110', stack, `${owner}: `, () => variablesOf(container.env, 'container.env')) };
}

// ---- values that may be functions of the event ----

/** The text of a function that a server can evaluate, as a lock file has it, or undefined. */
function inline(f: Function, stack: string, report: Report): Fields | undefined {
  const expression = report.resolver.inline(Function.prototype.toString.call(f), stack);
  return expression === undefined ? undefined : { _type: 'inline', expression };
}

// The spellings of the one option, of which a job may use one.
const contextOptions = ['contexts', 'environments', 'context', 'environment'];

/** The contexts of a job as they are written, and the option that names them. */
export function contextsOf(job: any): { key: string; list: any[] } {
  const key = contextOptions.find((name) => job[name] !== undefined && job[name] !== null);
  if (key === undefined) return { key: 'environments', list: [] };
  return { key, list: key.endsWith('s') ? job[key] : [job[key]] };
}

function describeContexts(job: any, owner: string, stack: string, report: Report): Fields[] {
  const { list } = contextsOf(job);
  if (!Array.isArray(list)) {
    report.error('E110', stack, `${owner}: environments must be a list`);
    return [];
  }
  return list.map((value) => {
    if (typeof value === 'function') return { value: inline(value, stack, report) ?? '', dynamic: true };
    if (typeof value !== 'string' || value === '') report.error('E110', stack, `${owner}: an environment must be a name or a function, not ${shown(value)}`);
    return { value, dynamic: false };
  });
}

function describeEnv(job: any, owner: string, stack: string, report: Report): Fields {
  if (typeof job.env === 'function') return { dynamicEnv: true, env: inline(job.env, stack, report) };
  if (job.env === undefined) return {};
  if (kindOf(job.env) !== 'object' || typeof job.env.then === 'function') {
    report.error('E110', stack, `${owner}: env must be a map or a function`);
    return {};
  }
  const env = report.try('E110', stack, `${owner}: `, () => variablesOf(job.env));
  return { env };
}

/** Reads variables: texts, or numbers and flags, which become texts. */
export function variablesOf(env: object, name = 'env'): Record<string, string> {
  checkVariables(env, name);
  return Object.fromEntries(Object.entries(env).map(([k, v]) => [k, String(v)]));
}

function describeGroup(job: any, contexts: Fields[], owner: string, stack: string, report: Report): Fields {
  const group = job.concurrencyGroup;
  if (group === null) return {}; // none, not even the default
  if (typeof group === 'function') return { dynamicConcurrencyGroup: true, concurrencyGroup: inline(group, stack, report) };
  if (group !== undefined && (typeof group !== 'string' || group === '')) report.error('E110', stack, `${owner}: concurrencyGroup must be text or a function`);
  // Only the list spelling gives a default: its first element where that is a plain name.
  const listed = Array.isArray(job.contexts ?? job.environments) ? contexts[0] : undefined;
  return { concurrencyGroup: group ?? (listed && !listed.dynamic ? listed.value : undefined) };
}
