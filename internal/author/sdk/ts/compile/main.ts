// The program that describes a workflow file to the compiler. It works in two passes, because places and the purity of
// functions are decided outside: `survey` runs through everything and lists what it would have to ask, `describe` runs
// again with the answers.

import './console';
import * as module from 'kici:workflow';
import { siteOf } from '../sdk/site';
import { describeWorkflow } from '../sdk/describe';
import { unwritable } from './values';
import { Report, matcherOf, noResolver, type LabelReading, type Problem, type Resolver, type SourceLocation } from '../sdk/report';

interface Exported {
  export: string;
  workflow: any;
}

/** What the compiler must answer, each list without repetitions. */
interface Questions {
  stacks: string[];
  functions: { text: string; stack: string }[];
  labels: string[];
  regexes: { source: string; flags: string }[];
  crons: { expression: string; timezone: string }[];
  workflows: { name: string; hashFiles?: string[]; stack: string }[];
}

/** Answers by the position of the question. */
interface Answers {
  file: string;
  locations: (SourceLocation | null)[];
  /** The text of a function that a server may evaluate, null for any other. */
  inline: (string | null)[];
  labels: LabelReading[];
  guards: string[];
  crons: string[];
}

interface Description {
  workflows: { name: string; export: string; fields: [string, unknown][] }[];
  fixtures: { id: string; options: unknown; stack: string }[];
  problems: Problem[];
}

const isWorkflow = (v: any) => v?._tag === 'Workflow';

/** Warns of workflows that are exported in a way in which nobody finds them. */
function warnOfHidden(report: Report): void {
  const found = workflows().map(({ workflow }) => workflow);
  const { default: main, ...named } = module as Record<string, any>;
  for (const [name, value] of Object.entries(named)) {
    const hidden = Array.isArray(value) && value.find((v) => isWorkflow(v) && !found.includes(v));
    if (hidden) report.warn('W106', siteOf(hidden), `'${name}' is a list of workflows, and only the default export may be one`, 'export each of them by a name of its own');
  }
  const other = Array.isArray(main) ? main.findIndex((v) => !isWorkflow(v) && v?._tag !== 'Fixture') : -1;
  if (other >= 0) report.warn('W106', siteOf(main.find(isWorkflow)), `entry ${other + 1} of the default export is no workflow`);
}

/** The workflows of the module: the default export, alone or as a list, then named ones in the order of their names. */
function workflows(): Exported[] {
  const { default: main, ...named } = module as Record<string, any>;
  const all: Exported[] = Array.isArray(main)
    ? main.map((w, i) => ({ export: `#default[${i}]`, workflow: w }))
    : [{ export: '#default', workflow: main }];
  for (const name of Object.keys(named).sort()) all.push({ export: `#${name}`, workflow: named[name] });
  const seen = new Set<unknown>();
  return all.filter(({ workflow: w }) => isWorkflow(w) && !seen.has(w) && seen.add(w));
}

/** The fixtures of the module: every exported one, also in lists. */
function fixtures(): Description['fixtures'] {
  const all = Object.values(module as Record<string, any>).flat().filter((v) => v?._tag === 'Fixture');
  return [...new Set(all)].map((f) => {
    const { _tag, id, ...options } = f;
    return { id, options, stack: siteOf(f) };
  });
}

// A list that gives each entry a number, the same for equal entries.
class Numbered<T> {
  readonly list: T[] = [];
  private readonly known = new Map<string, number>();
  add(key: string, entry: T): number {
    const at = this.known.get(key) ?? this.list.push(entry) - 1;
    this.known.set(key, at);
    return at;
  }
}

const stacks = new Numbered<string>();
const functions = new Numbered<{ text: string; stack: string }>();
const labels = new Numbered<string>();
const regexes = new Numbered<{ source: string; flags: string }>();
const crons = new Numbered<{ expression: string; timezone: string }>();

/** The fields of a workflow, none of one that cannot be described or written down. */
function fieldsOf(workflow: any, report: Report): Record<string, unknown> {
  try {
    const fields = describeWorkflow(workflow, report);
    return writable(fields, siteOf(workflow), 'workflow', workflow.name, report) ? fields : {};
  } catch (e: any) {
    report.error('E122', siteOf(workflow), `workflow '${String(workflow.name)}' cannot be described: ${e?.message ?? e}`);
    return {};
  }
}

// Whatever else is wrong with it has been said already, and says more.
function writable(value: unknown, stack: string, what: string, name: unknown, report: Report): boolean {
  const part = unwritable(value, what);
  if (part && !report.problems.some((p) => p.severity === 'error')) {
    report.error('E122', stack, `${what} '${String(name)}': ${part.slice(what.length + 1)}, which JSON cannot hold`);
  }
  return !part;
}

const textsOf = (list: any) => (Array.isArray(list) && list.every((v) => typeof v === 'string') ? list : undefined);

function survey(): Questions {
  const report = new Report('', {
    locate: (stack) => void stacks.add(stack, stack),
    inline: (text, stack) => void functions.add(`${stack}\n${text}`, { text, stack }),
    label: (text) => (labels.add(text, text), noResolver.label(text)),
    guard: (source, flags) => void regexes.add(`${flags}/${source}`, { source, flags }),
    cron: (expression, timezone) => void crons.add(`${timezone} ${expression}`, { expression, timezone }),
  });
  const all = workflows();
  warnOfHidden(report);
  for (const { workflow } of all) fieldsOf(workflow, report);
  return {
    stacks: stacks.list,
    functions: functions.list,
    labels: labels.list,
    regexes: regexes.list,
    crons: crons.list,
    workflows: all.map(({ workflow: w }) => ({ name: String(w.name), hashFiles: textsOf(w.hashFiles), stack: siteOf(w) })),
  };
}

function describe(answers: Answers): Description {
  const resolver: Resolver = {
    locate: (stack) => answers.locations[stacks.add(stack, stack)] ?? undefined,
    inline: (text, stack) => answers.inline[functions.add(`${stack}\n${text}`, { text, stack })] ?? undefined,
    label: (text) => matcherOf(answers.labels[labels.add(text, text)]),
    guard: (source, flags) => answers.guards[regexes.add(`${flags}/${source}`, { source, flags })] || undefined,
    cron: (expression, timezone) => answers.crons[crons.add(`${timezone} ${expression}`, { expression, timezone })] || undefined,
  };
  const report = new Report(answers.file, resolver);
  warnOfHidden(report);
  return {
    workflows: workflows().map(({ export: name, workflow }) => ({
      name: String(workflow.name), export: name, fields: Object.entries(fieldsOf(workflow, report)),
    })),
    fixtures: fixtures().filter((f) => writable(f.options, f.stack, 'fixture', f.id, report)),
    problems: report.problems,
  };
}

(globalThis as any).__kiciCompile = { survey, describe };
