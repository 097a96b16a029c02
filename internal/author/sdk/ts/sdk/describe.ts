// A workflow object, described as a lock file has it. The compiler does this for every workflow, an agent for the jobs
// that a generator made.

import { blameOf, siteOf } from './site';
import { describeTriggers } from './describe-triggers';
import { describeJob } from './describe-job';
import { describeRules } from './describe-steps';
import { isDuration, normalizeApproval } from './normalize';
import { WhenKeywords, resolveWhen } from './needs';
import { validateDag } from './graph';
import { Report, compact, flag, shown } from './report';
import { kindOf } from './schema';
import { suggest } from './spelling';

export { describeJob } from './describe-job';
export { flattenSteps } from './describe-steps';

type Fields = Record<string, unknown>;

const options = [
  'jobs', 'on', 'rules', 'description', 'hashFiles', 'registries', 'installEnv', 'timeout', 'concurrency', 'onCancel',
  'cleanup', 'onSuccess', 'onFailure', 'approval', 'name', '_tag',
];

/** Gives every job without a name the name `job-N`, N counting those jobs from 1. Runners and compilers both do so. */
export function nameJobs(workflow: any): void {
  let unnamed = 0;
  for (const job of Array.isArray(workflow?.jobs) ? workflow.jobs : []) {
    if (job?._tag === 'Job' && job.name === undefined) job.name = `job-${++unnamed}`;
  }
}

/** Describes a workflow: the fields of its entry from `triggers` on, in the order of a lock file. */
export function describeWorkflow(workflow: any, report: Report): Fields {
  const stack = siteOf(workflow);
  if (typeof workflow.name !== 'string' || workflow.name === '') report.error('E105', stack, 'a workflow needs a name', "write workflow('name', { … })");
  const blame = blameOf(workflow);
  if (blame) report.error('E105', stack, `workflow '${workflow.name}' ${blame}`);
  warnUnknown(workflow, options, `workflow '${workflow.name}'`, stack, report);
  nameJobs(workflow);
  checkHooks(workflow, `workflow '${workflow.name}'`, stack, report);
  const fields = compact({
    triggers: describeTriggers(workflow.on, workflow, report),
    jobs: describeJobs(workflow, report),
    rules: describeRules(workflow.rules, `workflow '${workflow.name}'`, stack, (i) => i, report),
    description: text(workflow.description, `workflow '${workflow.name}': description`, stack, report),
    hashFiles: textList(workflow.hashFiles, 'hashFiles', stack, report),
    registries: registries(workflow, stack, report),
    installEnv: secretReferences(workflow.installEnv, stack, report),
    hasOnCancel: flag(workflow.onCancel),
    hasCleanup: flag(workflow.cleanup),
    hasOnSuccess: flag(workflow.onSuccess),
    hasOnFailure: flag(workflow.onFailure),
    concurrency: concurrency(workflow, stack, report),
    timeout: duration(workflow.timeout, `workflow '${workflow.name}': timeout`, 'milliseconds', stack, report),
    approval: report.try('E114', stack, `workflow '${workflow.name}': `, () => holdable(normalizeApproval(workflow.approval))),
  });
  checkGraph(workflow, report);
  return fields;
}

function describeJobs(workflow: any, report: Report): Fields[] {
  const stack = siteOf(workflow);
  if (!Array.isArray(workflow.jobs)) {
    if (blameOf(workflow) === undefined) report.error('E105', stack, `workflow '${workflow.name}' needs a list of jobs`, 'write jobs: [job(…)]');
    return [];
  }
  const seen = new Set<string>();
  return workflow.jobs.flatMap((job: any, index: number) => {
    if (typeof job === 'function') return [describeGenerator(job, index, workflow, report)];
    if (job?._tag !== 'Job') {
      report.error('E105', stack, `workflow '${workflow.name}': entry ${index + 1} of jobs is neither a job nor a generator function`, 'make it with job(), dynamicJob() or an async function');
      return [];
    }
    if (typeof job.name !== 'string' || job.name === '') report.error('E105', siteOf(job) || stack, `the name of a job must be text that is not empty, not ${shown(job.name)}`);
    if (seen.has(job.name)) report.error('E106', siteOf(job) || stack, `workflow '${workflow.name}' has two jobs named '${job.name}'`, 'give one of them another name');
    seen.add(job.name);
    return [describeJob(job, index, report, stack)];
  });
}

function describeGenerator(generator: any, index: number, workflow: any, report: Report): Fields {
  const stack = siteOf(generator) || siteOf(workflow);
  const unnamed = generator._tag && (typeof generator.group !== 'string' || generator.group === '');
  if (unnamed) report.error('E105', stack, `a generator made with dynamicJob needs the name of its group, not ${shown(generator.group)}`);
  else if (generator.broken) report.error('E105', stack, `the generator of group '${generator.group}' needs a function 'generate'`);
  warnUnknown(generator.options, ['needs', 'generate'], `generator '${generator.group}'`, stack, report);
  const needs = describeNeeds(generator.needs, `generator '${generator.group ?? index}'`, stack, report);
  return compact({
    _type: 'dynamic',
    source: { file: report.file, index },
    group: generator.group,
    needs: needs.length ? needs : undefined,
    resultAware: flag(needs.length),
  });
}

/** Describes needs: a name for those that run on success without further words, else an object. */
export function describeNeeds(needs: any, owner: string, stack: string, report: Report): any[] {
  if (needs === undefined || needs === null) return [];
  return (Array.isArray(needs) ? needs : [needs]).flatMap((need: any) => {
    if (typeof need === 'string') return [need];
    if (need?._tag === 'Job') {
      // A job object without a name of its own is named by the workflow it belongs to.
      if (typeof need.name === 'string') return [need.name];
      report.error('E101', stack, `${owner} needs a job without a name that is not part of this workflow`, 'add it to jobs');
      return [];
    }
    const runOn = resolveWhen(need?.when);
    if (runOn === undefined) {
      report.error('E108', stack, `${owner}: when must be 'on-success', 'always', 'on-skip', 'on-failure' or a list of statuses, not ${shown(need.when)}`, suggest(need.when, ['on-success', 'always', 'on-skip', 'on-failure']));
      return [];
    }
    warnStatuses(runOn, owner, stack, report);
    if (typeof need?.group === 'string' && need.group !== '') return [{ group: need.group, runOn }];
    const name = typeof need?.name === 'object' ? need.name?.name : need?.name;
    if (typeof name === 'string') return [{ name, runOn }];
    report.error('E108', stack, `${owner}: a need must be a job, a name, {name, when} or dynamicGroup(name)`);
    return [];
  });
}

const endings = [...WhenKeywords.always, 'unroutable'];

// A status that no job ends with is one that is never reached: the job would never run for it, and nothing would say so.
function warnStatuses(runOn: string[], owner: string, stack: string, report: Report): void {
  for (const status of runOn) {
    if (!endings.includes(status)) report.warn('W105', stack, `${owner}: when '${status}' is no status that a job ends with: ${endings.join(', ')}`, suggest(status, endings));
  }
}

const groupNode = (g: string) => `dynamicGroup(${g})`;

// otherKind tells of a name that is not known as a job that it is a group, and the other way round.
function otherKind(need: string | undefined, owners: Map<string, unknown>): string | undefined {
  if (need === undefined) return undefined;
  if (owners.has(groupNode(need))) return `'${need}' is the group of a generator: write dynamicGroup('${need}')`;
  const job = [...owners.keys()].find((name) => groupNode(name) === need);
  return job === undefined ? undefined : `'${job}' is a job: write its name alone`;
}

// checkGraph looks at static jobs and generators as one graph, since a circle may lead through a group.
function checkGraph(workflow: any, report: Report): void {
  if (!Array.isArray(workflow.jobs)) return;
  const silent = new Report(report.file, report.resolver);
  const owners = new Map<string, any>();
  const nodes = new Map<string, { name: string; needs: string[] }>();
  for (const job of workflow.jobs) {
    const name = job?._tag === 'Job' ? job.name : typeof job === 'function' && typeof job.group === 'string' && job.group ? groupNode(job.group) : undefined;
    if (name === undefined) continue;
    const needs = describeNeeds(job.needs, name, '', silent).map((n: any) => (typeof n === 'string' ? n : n.group ? groupNode(n.group) : n.name));
    const earlier = nodes.get(name);
    if (earlier) earlier.needs.push(...needs);
    else nodes.set(name, { name, needs });
    owners.set(name, owners.get(name) ?? job);
  }
  const plain = (text: string) => text.replace(/(?:job )?'dynamicGroup\(([^)]*)\)'/g, "group '$1'").replace(/dynamicGroup\(([^)]*)\)/g, '$1 (group)');
  for (const p of validateDag([...nodes.values()])) {
    const hint = otherKind(p.need, owners) ?? plain(p.suggestion ? `did you mean '${p.suggestion}'?` : p.hint);
    report.error(p.code, siteOf(owners.get(p.node)) || siteOf(workflow), plain(p.message), hint);
  }
}

function concurrency(workflow: any, stack: string, report: Report): Fields | undefined {
  const value = workflow.concurrency;
  if (value === undefined) return undefined;
  warnUnknown(value, ['group', 'cancelInProgress', 'max'], `workflow '${workflow.name}': concurrency`, stack, report);
  flags(value ?? {}, ['cancelInProgress'], `workflow '${workflow.name}': concurrency`, stack, report);
  if (typeof value?.group !== 'function') report.error('E109', stack, 'concurrency needs a function group');
  if (value?.max !== undefined && !(Number.isSafeInteger(value.max) && value.max >= 1)) report.error('E109', stack, 'concurrency.max must be a whole number of at least 1');
  return compact({ hasGroup: typeof value?.group === 'function', cancelInProgress: value?.cancelInProgress, max: value?.max });
}

const reference = /^[^\s:][^\s]*:[^\s:]+$/;

function registries(workflow: any, stack: string, report: Report): Fields[] | undefined {
  if (workflow.registries === undefined) return undefined;
  const wrong = (message: string, suggestion?: string) => report.error('E116', stack, `registry: ${message}`, suggestion);
  if (!Array.isArray(workflow.registries)) {
    wrong('registries must be a list');
    return undefined;
  }
  const scopes = new Set<string>();
  return workflow.registries.map((r) => {
    warnUnknown(r, ['url', 'scope', 'tokenSecret', 'alwaysAuth'], `workflow '${workflow.name}': registry`, stack, report);
    flags(r ?? {}, ['alwaysAuth'], `workflow '${workflow.name}': registry`, stack, report);
    if (typeof r?.url !== 'string' || !/^https?:\/\/[^\s/?#]+/.test(r.url)) wrong(`url ${shown(r?.url)} is not a URL`, 'write it with https://');
    if (typeof r?.tokenSecret !== 'string' || !reference.test(r.tokenSecret)) wrong(`tokenSecret must be <context>:<secret>, not ${shown(r?.tokenSecret)}`, "name a secret of a context, such as 'production:NPM_TOKEN'");
    if (r?.scope !== undefined && !(typeof r.scope === 'string' && /^@[a-z0-9][a-z0-9-]*$/i.test(r.scope))) wrong(`scope ${shown(r.scope)} must be like @name`);
    const scope = String(r?.scope ?? '').toLowerCase();
    if (scopes.has(scope)) wrong(scope ? `two registries for scope ${r.scope}` : 'two registries without a scope');
    scopes.add(scope);
    return compact({ url: r?.url, scope: r?.scope, tokenSecret: r?.tokenSecret, alwaysAuth: r?.alwaysAuth });
  });
}

function secretReferences(list: any, stack: string, report: Report): string[] | undefined {
  const texts = textList(list, 'installEnv', stack, report);
  for (const t of texts ?? []) if (!reference.test(t)) report.error('E116', stack, `installEnv must be <context>:<secret>, not ${shown(t)}`, "name a secret of a context, such as 'production:NPM_TOKEN'");
  return texts;
}

// ---- shared by workflows and jobs ----

/** Warns of options that do not exist, of a map or of those in a list: a slip there would otherwise pass in silence. */
export function warnUnknown(o: any, known: string[], owner: string, stack: string, report: Report): void {
  if (Array.isArray(o)) for (const one of o) warnUnknown(one, known, owner, stack, report);
  else if (kindOf(o) === 'object' && !(o instanceof RegExp)) {
    for (const key of Object.keys(o)) {
      if (!known.includes(key)) report.warn('W101', stack, `${owner} has no option '${key}'`, suggest(key, known));
    }
  }
}

/** Checks that options are true or false where they are given. */
export function flags(o: any, names: string[], owner: string, stack: string, report: Report): void {
  for (const name of names) {
    if (o[name] !== undefined && typeof o[name] !== 'boolean') report.error('E110', stack, `${owner}: ${name} must be true or false, not ${shown(o[name])}`);
  }
}

/** Text, or undefined. */
export function text(value: any, name: string, stack: string, report: Report): string | undefined {
  if (value !== undefined && typeof value !== 'string') report.error('E110', stack, `${name} must be text, not ${shown(value)}`);
  return value;
}

/** Checks that hooks are functions or `{run, timeout}`. */
export function checkHooks(o: any, owner: string, stack: string, report: Report): void {
  for (const name of ['onCancel', 'cleanup', 'onSuccess', 'onFailure', 'beforeStep', 'afterStep']) {
    const hook = o[name];
    if (hook === undefined) continue;
    if (typeof hook !== 'function' && typeof hook?.run !== 'function') report.error('E110', stack, `${owner}: ${name} must be a function or {run, timeout}`);
    else warnUnknown(hook, ['run', 'timeout'], `${owner}: ${name}`, stack, report);
    duration(hook?.timeout, `${owner}: ${name}.timeout`, 'milliseconds', stack, report);
  }
}

/** A positive number of a unit of time, or undefined. */
export function duration(value: any, name: string, unit: string, stack: string, report: Report): number | undefined {
  if (value === undefined) return undefined;
  if (typeof value === 'number' && value > Number.MAX_SAFE_INTEGER) report.error('E110', stack, `${name} must be at most ${Number.MAX_SAFE_INTEGER} ${unit}, not ${shown(value)}`);
  else if (!isDuration(value)) report.error('E110', stack, `${name} must be a positive number of ${unit}, not ${shown(value)}`);
  return value;
}

/** A list of texts, or undefined. */
export function textList(value: any, name: string, stack: string, report: Report): string[] | undefined {
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.every((v) => typeof v === 'string')) return value;
  report.error('E110', stack, `${name} must be a list of texts`);
  return undefined;
}

/** An approval of a workflow or job: there is no drift to wait for. */
export function holdable<T extends { when: string } | undefined>(approval: T): T {
  if (approval?.when === 'drift') throw new Error("approval when 'drift' needs a step with a check");
  return approval;
}
