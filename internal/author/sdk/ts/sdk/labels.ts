// Labels of runsOn and runsOnAll, turned into matchers. Which texts are globs, and which expression each of those becomes,
// is told by the host: it must be what servers and the tools of others make of them, to the letter.

import { shown } from './report';

/** A matcher as a lock file has it. */
export type LabelMatcher = { kind: 'exact'; value: string } | { kind: 'regex'; source: string; flags: string };

/** Reads a label that is text. Throws an Error for a glob that cannot be a matcher. */
export type ReadLabel = (text: string) => LabelMatcher;

function toMatcher(label: unknown, read: ReadLabel): LabelMatcher {
  if (label instanceof RegExp) return { kind: 'regex', source: label.source, flags: label.flags };
  if (typeof label !== 'string' || label === '') throw new Error(`a label must be text or a regular expression, not ${shown(label)}`);
  return read(label);
}

function toMatchers(labels: unknown, read: ReadLabel): LabelMatcher[] {
  return (Array.isArray(labels) ? labels : [labels]).map((one) => toMatcher(one, read));
}

/** What `runsOn` says: labels that an agent must and must not have, and how one of several is picked. */
export function readRunsOn(runsOn: any, read: ReadLabel): { labels: LabelMatcher[]; exclude: LabelMatcher[]; pick: string } {
  const whole = runsOn !== null && typeof runsOn === 'object' && !Array.isArray(runsOn) && !(runsOn instanceof RegExp);
  const { labels, exclude = [], pick = 'deterministic' } = whole ? runsOn : { labels: runsOn };
  if (pick !== 'deterministic' && pick !== 'any') throw new Error(`runsOn.pick must be 'deterministic' or 'any', not ${shown(pick)}`);
  if (labels === undefined) throw new Error('runsOn needs labels');
  return { labels: toMatchers(labels, read), exclude: toMatchers(exclude, read), pick };
}

/** What `runsOnAll` says: hosts that fit one of the groups and none of the excludes. */
export function readRunsOnAll(runsOnAll: any, read: ReadLabel): { include: LabelMatcher[][]; exclude: LabelMatcher[] } {
  if (Array.isArray(runsOnAll)) {
    const negative = (l: unknown) => typeof l === 'string' && l.startsWith('!');
    const include = runsOnAll.filter((l) => !negative(l)).map((l) => toMatcher(l, read));
    return { include: include.length ? [include] : [], exclude: runsOnAll.filter(negative).map((l) => toMatcher(l.slice(1), read)) };
  }
  if (typeof runsOnAll === 'string' || runsOnAll instanceof RegExp) return { include: [[toMatcher(runsOnAll, read)]], exclude: [] };
  if (!Array.isArray(runsOnAll?.include)) throw new Error('runsOnAll must be a label, a list of labels or {include: [{all: [...]}]}');
  return {
    include: runsOnAll.include.map((group: any) => {
      if (group?.all === undefined) throw new Error('a group of runsOnAll.include must be {all: [...]}');
      return toMatchers(group.all, read);
    }),
    exclude: toMatchers(runsOnAll.exclude ?? [], read),
  };
}
