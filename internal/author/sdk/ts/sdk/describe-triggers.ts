// Triggers as a lock file has them.

import { siteOf } from './site';
import { describeInput } from './schema-tools';
import { Report, compact } from './report';
import { suggest } from './spelling';

type Entry = Record<string, unknown>;

const pullEvents = ['opened', 'synchronize', 'reopened', 'closed'];
const morePullEvents = [
  'assigned', 'unassigned', 'labeled', 'unlabeled', 'edited', 'converted_to_draft', 'ready_for_review', 'locked',
  'unlocked', 'review_requested', 'review_request_removed', 'auto_merge_enabled', 'auto_merge_disabled',
];

/** Options of each kind and the words they may be; null for free text. What is not listed is not an option. */
const choices: Record<string, Record<string, string[] | null>> = {
  pr: { events: [...pullEvents, ...morePullEvents], target: null, source: null, paths: null, repos: null },
  push: { branches: null, tags: null, paths: null, repos: null },
  tag: { patterns: null, repos: null },
  comment: { actions: ['created', 'edited', 'deleted'], source: ['issue', 'pr'], bodyMatch: null, repos: null },
  review: { actions: ['submitted', 'edited', 'dismissed'], states: ['approved', 'changes_requested', 'commented', 'dismissed'], repos: null },
  review_comment: { actions: ['created', 'edited', 'deleted'], repos: null },
  release: { actions: ['published', 'unpublished', 'created', 'edited', 'deleted', 'prereleased', 'released'], repos: null },
  dispatch: { types: null, inputs: null, repos: null },
  create: { refTypes: ['branch', 'tag'], patterns: null, repos: null },
  delete: { refTypes: ['branch', 'tag'], patterns: null, repos: null },
  status: { contexts: null, states: ['error', 'failure', 'pending', 'success'], repos: null },
  workflow_run: { actions: ['requested', 'completed', 'in_progress'], workflows: null, conclusions: null, repos: null },
  fork: { repos: null },
  star: { actions: ['created', 'deleted'], repos: null },
  watch: { actions: ['started'], repos: null },
  webhook: { events: null, actions: null, repos: null },
  kici_event: { name: null, match: null, not: null, source: null },
  workflow_complete: { name: null, status: ['success', 'failed', 'cancelled'], source: null },
  job_complete: { workflow: null, job: null, status: ['success', 'failed', 'cancelled', 'skipped'], source: null },
  generic_webhook: { source: null, events: null, match: null, not: null, path: null, auth: null },
  schedule: { cron: null, timezone: null, inputs: null },
  lifecycle: { events: ['workflow_complete', 'job_complete', 'job_failed', 'registration_updated'], sources: null },
};

/** Describes the triggers of a workflow. One trigger may become several entries. */
export function describeTriggers(on: unknown, workflow: any, report: Report): Entry[] {
  if (on === undefined || on === null) return [];
  return (Array.isArray(on) ? on : [on]).flatMap((t: any) => {
    const stack = siteOf(t) || siteOf(workflow);
    if (t?._tag !== 'Trigger') {
      report.error('E112', stack, `workflow '${workflow.name}': 'on' must hold triggers such as push() or pr()`);
      return [];
    }
    checkOptions(t, stack, report);
    return report.try('E112', stack, `trigger ${t.kind}: `, () => entries(t.kind, t.options, stack, report)) ?? [];
  });
}

function checkOptions(t: any, stack: string, report: Report): void {
  const known = choices[t.kind];
  for (const [key, value] of Object.entries(t.options)) {
    if (key === 'description') continue;
    if (!Object.hasOwn(known, key)) {
      report.error('E112', stack, `trigger ${t.kind} has no option '${key}'`, suggest(key, Object.keys(known)));
      continue;
    }
    for (const word of known[key] ? asList(value) : []) {
      if (!known[key]!.includes(word as string)) {
        report.error('E112', stack, `trigger ${t.kind}: '${word}' is not one of ${key}: ${known[key]!.join(', ')}`, suggest(String(word), known[key]!));
      }
    }
  }
}

function entries(kind: string, o: any, stack: string, report: Report): Entry[] {
  const repos = o.repos === undefined ? [] : patterns(o.repos);
  const withRepos = (e: Entry): Entry => (repos.length ? { ...e, repos } : e);
  if (kind === 'push') {
    const list = [withRepos({ _type: 'push', branches: patterns(o.branches), paths: texts(o.paths, 'paths') })];
    // The tag entry of a push has no repos: so servers expect it.
    return o.tags === undefined ? list : [...list, { _type: 'tag', patterns: patterns(o.tags) }];
  }
  return [withRepos({ _type: kind, ...fields(kind, o, stack, report) })];
}

function fields(kind: string, o: any, stack: string, report: Report): Entry {
  switch (kind) {
    case 'pr': return {
      events: o.events === undefined ? pullEvents : texts(o.events, 'events'),
      targetBranches: patterns(o.target), sourceBranches: patterns(o.source), paths: texts(o.paths, 'paths'),
    };
    case 'tag': return { patterns: patterns(o.patterns) };
    case 'comment': return compact({ actions: texts(o.actions, 'actions'), source: o.source, bodyMatch: o.bodyMatch === undefined ? undefined : pattern(o.bodyMatch) });
    case 'review': return { actions: texts(o.actions, 'actions'), states: texts(o.states, 'states') };
    case 'review_comment': case 'release': case 'star': case 'watch': return { actions: texts(o.actions, 'actions') };
    case 'dispatch': return compact({ types: texts(o.types, 'types'), inputs: inputs(o.inputs, stack, report) });
    case 'create': case 'delete': return { refTypes: texts(o.refTypes, 'refTypes'), patterns: patterns(o.patterns) };
    case 'status': return { contexts: texts(o.contexts, 'contexts'), states: texts(o.states, 'states') };
    case 'workflow_run': return { actions: texts(o.actions, 'actions'), workflows: texts(o.workflows, 'workflows'), conclusions: texts(o.conclusions, 'conclusions') };
    case 'webhook': return { events: required(texts(o.events, 'events'), 'events'), actions: texts(o.actions, 'actions') };
    case 'kici_event': return compact({ eventName: required(eventName(o.name), 'name'), match: map(o.match, 'match'), not: map(o.not, 'not'), source: o.source });
    case 'workflow_complete': return compact({ name: o.name, status: optionalTexts(o.status, 'status'), source: o.source });
    case 'job_complete': return compact({ workflow: o.workflow, job: jobName(o.job), status: optionalTexts(o.status, 'status'), source: o.source });
    case 'generic_webhook': return compact({
      source: required(o.source, 'source'), events: optionalTexts(o.events, 'events'), match: map(o.match, 'match'),
      not: map(o.not, 'not'), path: o.path, auth: o.auth,
    });
    case 'schedule': return scheduled(o, stack, report);
    case 'lifecycle': return compact({ events: required(texts(o.events, 'events'), 'events'), sources: optionalTexts(o.sources, 'sources'), description: o.description });
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
  if (typeof cron !== 'string' || cron.trim().split(/\s+/).length < 5) throw new Error(`cron must have five fields (minute, hour, day of month, month, day of week), not ${JSON.stringify(cron)}`);
  const timezone = o.timezone ?? 'UTC';
  if (typeof timezone !== 'string') throw new Error(`timezone must be text such as 'Europe/Paris', not ${JSON.stringify(timezone)}`);
  const doubt = report.resolver.cron(cron, timezone);
  if (doubt) report.warn('W104', stack, `trigger schedule: no server will start this: ${doubt}`);
  return compact({ cronExpression: cron, timezone, description: o.description, inputs: described });
}

function inputs(value: any, stack: string, report: Report): Entry | undefined {
  if (value === undefined) return undefined;
  const schemas = value?._tag === 'DispatchInputs' ? value.schemas : value;
  if (schemas === null || typeof schemas !== 'object') throw new Error('inputs must be a map of schemas');
  const described = Object.entries(schemas).map(([name, schema]) => [name, report.try('E117', stack, `input '${name}': `, () => describeInput(schema))]);
  return Object.fromEntries(described.filter(([, d]) => d !== undefined));
}

function required<T>(value: T, name: string): T {
  if (value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)) throw new Error(`${name} is required`);
  return value;
}

const eventName = (name: any) => (name?._tag === 'EventDefinition' ? name.name : name);
const jobName = (job: any) => (job?._tag === 'Job' ? job.name : job);

function asList(value: unknown): unknown[] {
  return value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
}

function texts(value: unknown, name: string): string[] {
  return asList(value).map((v) => {
    if (typeof v !== 'string') throw new Error(`${name} must be text, not ${v instanceof RegExp ? `the regular expression ${v}` : JSON.stringify(v)}`);
    return v;
  });
}

const optionalTexts = (value: unknown, name: string) => (value === undefined ? undefined : texts(value, name));

function map(value: unknown, name: string): unknown {
  if (value !== undefined && (value === null || typeof value !== 'object' || Array.isArray(value))) throw new Error(`${name} must be a map of paths to values`);
  return value;
}

const patterns = (value: unknown) => asList(value).map(pattern);

function pattern(value: unknown): Entry {
  if (value instanceof RegExp) return compact({ type: 'regex', pattern: value.source, flags: value.flags || undefined });
  if (typeof value !== 'string' || value === '') throw new Error(`a pattern must be text or a regular expression, not ${JSON.stringify(value)}`);
  return { type: 'glob', pattern: value };
}
