// The options of each kind of trigger, and what may be given for them.

import { shown } from './report';
import { suggest } from './spelling';
import { kindOf } from './schema';
import { validateSchema } from './schema-tools';

/** What an option takes: `many` and `one` words of a list, or a value that a function judges. */
type Option = { words: string[]; many: boolean } | { check: (value: any) => string | undefined };

/** A mistake in an option; the message goes on after the name of the trigger. */
export interface OptionProblem {
  message: string;
  suggestion?: string;
}

const many = (...words: string[]): Option => ({ words, many: true });
const one = (...words: string[]): Option => ({ words, many: false });

/** The values of an option that takes one or a list of them. */
export function asList(value: unknown): unknown[] {
  return value === undefined || value === null ? [] : Array.isArray(value) ? value : [value];
}

const isScalar = (v: unknown): boolean => v === null || ['string', 'number', 'boolean'].includes(typeof v) && !Number.isNaN(v);
const isMap = (v: unknown): boolean => kindOf(v) === 'object' && !(v instanceof RegExp);

// first gives the first complaint about the entries of a list.
const first = (judge: (one: unknown) => string | undefined) => (value: unknown) => asList(value).map(judge).find((m) => m !== undefined);

const patternsProblem = (name: string) => first((v) => (v instanceof RegExp || typeof v === 'string' && v !== '' ? undefined : `${name} must be text or a regular expression, not ${shown(v)}`));
const patterns = (name: string): Option => ({ check: patternsProblem(name) });
const texts = (name: string): Option => ({ check: first((v) => (typeof v === 'string' ? undefined : `${name} must be text, not ${shown(v)}`)) });
const text = (name: string): Option => ({ check: (v) => (v === undefined || typeof v === 'string' ? undefined : `${name} must be text, not ${shown(v)}`) });
const single: Option = { check: (v) => (Array.isArray(v) ? 'bodyMatch must be one pattern, not a list' : patternsProblem('bodyMatch')(v)) };
const inputs: Option = { check: inputsProblem };
const event: Option = { check: (v) => (v === undefined || typeof (v?._tag === 'EventDefinition' ? v.name : v) === 'string' ? undefined : `name must be text or what defineEvent gives, not ${shown(v)}`) };
const job: Option = { check: jobProblem };
const auth: Option = { check: (v) => (v === undefined || isMap(v) ? undefined : `auth must be {method, secret, …}, not ${shown(v)}`) };
const paths = (name: string): Option => ({ check: (v) => pathsProblem(name, v) });

function inputsProblem(value: any): string | undefined {
  const schemas = value?._tag === 'DispatchInputs' ? value.schemas : value;
  if (validateSchema(schemas)) return 'inputs must be a map of schemas, such as { version: z.string() }, not one schema';
  if (value === undefined || isMap(schemas)) return undefined;
  return 'inputs must be a map of schemas';
}

function jobProblem(value: any): string | undefined {
  if (value?._tag === 'Job') return typeof value.name === 'string' ? undefined : 'job must have a name, and the job that is given has none';
  return value === undefined || typeof value === 'string' ? undefined : `job must be a job or its name, not ${shown(value)}`;
}

function pathsProblem(name: string, value: any): string | undefined {
  if (value === undefined) return undefined;
  if (!isMap(value)) return `${name} must be a map of paths to values`;
  const wrong = Object.entries(value).find(([, v]) => !asValues(v).every((x) => isScalar(x) || x instanceof RegExp));
  return wrong && `${name} of '${wrong[0]}' must be text, a number, a boolean, null, a regular expression or a list of those, not ${shown(wrong[1])}`;
}

// asValues is asList, but null is a value that a payload may have.
const asValues = (value: unknown): unknown[] => (Array.isArray(value) ? value : [value]);

const pullEvents = ['opened', 'synchronize', 'reopened', 'closed'];
const morePullEvents = [
  'assigned', 'unassigned', 'labeled', 'unlabeled', 'edited', 'converted_to_draft', 'ready_for_review', 'locked',
  'unlocked', 'review_requested', 'review_request_removed', 'auto_merge_enabled', 'auto_merge_disabled',
];

/** The events of pull requests that count where none are named. */
export const defaultPullEvents = pullEvents;

const git = { repos: patterns('repos') };
const description = text('description');

/** Options of each kind. What is not listed is not an option. */
const table: Record<string, Record<string, Option>> = {
  pr: { events: many(...pullEvents, ...morePullEvents), target: patterns('target'), source: patterns('source'), paths: texts('paths'), ...git },
  push: { branches: patterns('branches'), tags: patterns('tags'), paths: texts('paths'), ...git },
  tag: { patterns: patterns('patterns'), ...git },
  comment: { actions: many('created', 'edited', 'deleted'), source: one('issue', 'pr'), bodyMatch: single, ...git },
  review: { actions: many('submitted', 'edited', 'dismissed'), states: many('approved', 'changes_requested', 'commented', 'dismissed'), ...git },
  review_comment: { actions: many('created', 'edited', 'deleted'), ...git },
  release: { actions: many('published', 'unpublished', 'created', 'edited', 'deleted', 'prereleased', 'released'), ...git },
  dispatch: { types: texts('types'), inputs, ...git },
  create: { refTypes: many('branch', 'tag'), patterns: patterns('patterns'), ...git },
  delete: { refTypes: many('branch', 'tag'), patterns: patterns('patterns'), ...git },
  status: { contexts: texts('contexts'), states: many('error', 'failure', 'pending', 'success'), ...git },
  workflow_run: { actions: many('requested', 'completed', 'in_progress'), workflows: texts('workflows'), conclusions: texts('conclusions'), ...git },
  fork: { ...git },
  star: { actions: many('created', 'deleted'), ...git },
  watch: { actions: many('started'), ...git },
  webhook: { events: texts('events'), actions: texts('actions'), ...git },
  kici_event: { name: event, match: paths('match'), not: paths('not'), source: text('source') },
  workflow_complete: { name: text('name'), status: many('success', 'failed', 'cancelled'), source: text('source') },
  job_complete: { workflow: text('workflow'), job, status: many('success', 'failed', 'cancelled', 'skipped'), source: text('source') },
  generic_webhook: { source: text('source'), events: texts('events'), match: paths('match'), not: paths('not'), path: text('path'), auth },
  schedule: { cron: { check: () => undefined }, timezone: { check: () => undefined }, inputs },
  lifecycle: { events: many('workflow_complete', 'job_complete', 'job_failed', 'registration_updated'), sources: texts('sources') },
};

/** What is wrong with the options of a trigger of that kind. */
export function optionProblems(kind: string, options: any): OptionProblem[] {
  if (!isMap(options)) return [{ message: `: its options must be a map, not ${shown(options)}` }];
  const known: Record<string, Option> = { ...table[kind], description };
  return Object.entries(options).flatMap(([name, value]) => {
    if (!Object.hasOwn(known, name)) return [{ message: ` has no option '${name}'`, suggestion: suggest(name, Object.keys(known)) }];
    return problemsOf(name, known[name], value);
  });
}

function problemsOf(name: string, option: Option, value: unknown): OptionProblem[] {
  if ('check' in option) {
    const message = option.check(value);
    return message === undefined ? [] : [{ message: `: ${message}` }];
  }
  if (!option.many && Array.isArray(value)) return [{ message: `: ${name} must be one of ${option.words.join(', ')}, not a list` }];
  return asList(value).filter((word) => !option.words.includes(word as string)).map((word) => ({
    message: `: ${typeof word === 'string' ? `'${word}'` : shown(word)} is not one of ${name}: ${option.words.join(', ')}`, suggestion: suggest(word, option.words),
  }));
}
