// Triggers as a lock file has them.

import { blameOf, siteOf } from './site';
import { describeInput } from './schema-tools';
import { Report, compact, shown } from './report';
import { asList, defaultPullEvents, optionProblems } from './trigger-options';

type Entry = Record<string, unknown>;

/** Describes the triggers of a workflow. One trigger may become several entries. */
export function describeTriggers(on: unknown, workflow: any, report: Report): Entry[] {
  if (on === undefined || on === null) return [];
  return (Array.isArray(on) ? on : [on]).flatMap((t: any) => {
    const stack = siteOf(t) || siteOf(workflow);
    if (t?._tag !== 'Trigger') {
      report.error('E112', stack, `workflow '${workflow.name}': 'on' must hold triggers such as push() or pr()`, typeof t === 'function' ? 'call it: push()' : undefined);
      return [];
    }
    if (!checkOptions(t, stack, report)) return [];
    return report.try('E112', stack, `trigger ${t.kind}: `, () => entries(t.kind, t.options, stack, report)) ?? [];
  });
}

// checkOptions tells whether the options are as they must be.
function checkOptions(t: any, stack: string, report: Report): boolean {
  const problems = optionProblems(t.kind, t.options);
  const blame = blameOf(t);
  if (blame) problems.push({ message: `: ${blame}` });
  for (const p of problems) report.error('E112', stack, `trigger ${t.kind}${p.message}`, p.suggestion);
  return problems.length === 0;
}

function entries(kind: string, o: any, stack: string, report: Report): Entry[] {
  const repos = o.repos === undefined ? [] : patterns(o.repos);
  const withRepos = (e: Entry): Entry => (repos.length ? { ...e, repos } : e);
  if (kind === 'push') {
    const list = [withRepos({ _type: 'push', branches: patterns(o.branches), paths: texts(o.paths) })];
    // The tag entry of a push has no repos: so servers expect it.
    return o.tags === undefined ? list : [...list, { _type: 'tag', patterns: patterns(o.tags) }];
  }
  return [withRepos({ _type: kind, ...fields(kind, o, stack, report) })];
}

function fields(kind: string, o: any, stack: string, report: Report): Entry {
  switch (kind) {
    case 'pr': return {
      events: o.events === undefined ? defaultPullEvents : texts(o.events),
      targetBranches: patterns(o.target), sourceBranches: patterns(o.source), paths: texts(o.paths),
    };
    case 'tag': return { patterns: patterns(o.patterns) };
    case 'comment': return compact({ actions: texts(o.actions), source: o.source, bodyMatch: o.bodyMatch === undefined ? undefined : pattern(o.bodyMatch) });
    case 'review': return { actions: texts(o.actions), states: texts(o.states) };
    case 'review_comment': case 'release': case 'star': case 'watch': return { actions: texts(o.actions) };
    case 'dispatch': return compact({ types: texts(o.types), inputs: inputs(o.inputs, stack, report) });
    case 'create': case 'delete': return { refTypes: texts(o.refTypes), patterns: patterns(o.patterns) };
    case 'status': return { contexts: texts(o.contexts), states: texts(o.states) };
    case 'workflow_run': return { actions: texts(o.actions), workflows: texts(o.workflows), conclusions: texts(o.conclusions) };
    case 'webhook': return { events: required(texts(o.events), 'events'), actions: texts(o.actions) };
    case 'kici_event': return compact({ eventName: required(eventName(o.name), 'name'), match: map(o.match), not: map(o.not), source: o.source });
    case 'workflow_complete': return compact({ name: o.name, status: optionalTexts(o.status), source: o.source });
    case 'job_complete': return compact({ workflow: o.workflow, job: jobName(o.job), status: optionalTexts(o.status), source: o.source });
    case 'generic_webhook': return compact({
      source: required(o.source, 'source'), events: optionalTexts(o.events), match: map(o.match),
      not: map(o.not), path: o.path, auth: o.auth,
    });
    case 'schedule': return scheduled(o, stack, report);
    case 'lifecycle': return compact({ events: required(texts(o.events), 'events'), sources: optionalTexts(o.sources), description: o.description });
  }
  return {};
}

function scheduled(o: any, stack: string, report: Report): Entry {
  const described = inputs(o.inputs, stack, report);
  for (const [name, d] of Object.entries(described ?? {}) as [string, any][]) {
    if (!('default' in d) && !d.optional) {
      report.error('E117', stack, `schedule input "${name}" must declare a .default() or be .optional() — schedule triggers fire with no operator input`);
    }
  }
  const cron = required(o.cron, 'cron');
  if (typeof cron !== 'string' || cron.trim().split(/\s+/).length < 5) throw new Error(`cron must have five fields (minute, hour, day of month, month, day of week), not ${shown(cron)}`);
  const timezone = o.timezone ?? 'UTC';
  if (typeof timezone !== 'string') throw new Error(`timezone must be text such as 'Europe/Paris', not ${shown(timezone)}`);
  const doubt = report.resolver.cron(cron, timezone);
  if (doubt) report.warn('W104', stack, `trigger schedule: no server will start this: ${doubt}`);
  return compact({ cronExpression: cron, timezone, description: o.description, inputs: described });
}

function inputs(value: any, stack: string, report: Report): Entry | undefined {
  if (value === undefined) return undefined;
  const schemas = value?._tag === 'DispatchInputs' ? value.schemas : value;
  const described = Object.entries(schemas).map(([name, schema]) => [name, report.try('E117', stack, `input '${name}': `, () => describeNamed(name, schema))]);
  return Object.fromEntries(described.filter(([, d]) => d !== undefined));
}

function describeNamed(name: string, schema: unknown): unknown {
  if (name === '') throw new Error('an input needs a name');
  return describeInput(schema);
}

function required<T>(value: T, name: string): T {
  if (value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)) throw new Error(`${name} is required`);
  return value;
}

const eventName = (name: any) => (name?._tag === 'EventDefinition' ? name.name : name);
const jobName = (job: any) => (job?._tag === 'Job' ? job.name : job);

const texts = (value: unknown) => asList(value) as string[];
const optionalTexts = (value: unknown) => (value === undefined ? undefined : texts(value));

// map writes regular expressions as such maps have them: between slashes.
function map(value: any): unknown {
  const written = (v: unknown): unknown => (Array.isArray(v) ? v.map(written) : v instanceof RegExp ? String(v) : v);
  return value && Object.fromEntries(Object.entries(value).map(([path, v]) => [path, written(v)]));
}

const patterns = (value: unknown) => asList(value).map(pattern);

function pattern(value: any): Entry {
  if (value instanceof RegExp) return compact({ type: 'regex', pattern: value.source, flags: value.flags || undefined });
  return { type: 'glob', pattern: value };
}
