// Labels of runsOn and runsOnAll, turned into matchers. A text with glob characters becomes a regular expression, since
// lock files know exact labels and regular expressions only.

/** A matcher as a lock file has it. */
export type LabelMatcher = { kind: 'exact'; value: string } | { kind: 'regex'; source: string; flags: string };

/** Turns one label, glob or RegExp into a matcher. Throws an Error for anything else. */
export function toMatcher(label: unknown): LabelMatcher {
  if (label instanceof RegExp) return { kind: 'regex', source: label.source, flags: label.flags };
  if (typeof label !== 'string' || label === '') throw new Error(`a label must be text or a regular expression, not ${JSON.stringify(label) ?? typeof label}`);
  if (!isGlob(label)) return { kind: 'exact', value: label };
  const source = globSource(label);
  globs.set(source, label);
  return { kind: 'regex', source, flags: '' };
}

const globs = new Map<string, string>();

/** The expression as its author wrote it: the glob that it was made of, or itself. */
export const written = (source: string, flags: string): string => globs.has(source) ? `'${globs.get(source)}'` : `/${source}/${flags}`;

/** Turns one label or a list into matchers. */
export function toMatchers(labels: unknown): LabelMatcher[] {
  return (Array.isArray(labels) ? labels : [labels]).map(toMatcher);
}

/** Whether the text has characters of a glob: stars and question marks, or closed brackets, braces or parentheses. */
export function isGlob(text: string): boolean {
  return /[*?]|\[[^\]]+\]|\([^)]*\)|\{[^}]*(?:,|\.\.)[^}]*\}/.test(text.replace(/\\./g, ''));
}

const noDot = '(?!\\.)';
const oneChar = '(?=.)';
const star = '[^/]*?';
const slash = '\\/';
const globstar = '(?:(?:(?!(?:^|\\/)\\.).)*?)';

// globSource writes the expression the way picomatch does, so that the same label gives the same text.
function globSource(glob: string): string {
  return `^(?:${wholeGlob(glob) ?? plainGlob(glob) ?? generalGlob(glob)})$`;
}

// wholeGlob knows the globs that are nothing but stars, with an extension perhaps.
function wholeGlob(glob: string): string | undefined {
  const source = starsOnly(glob);
  return source && `${source}${slash}?`;
}

function starsOnly(glob: string): string | undefined {
  switch (glob) {
    case '*': return `${noDot}${oneChar}${star}`;
    case '.*': return `\\.${oneChar}${star}`;
    case '*.*': return `${noDot}${star}\\.${oneChar}${star}`;
    case '*/*': return `${noDot}${star}${slash}${oneChar}${noDot}${star}`;
    case '**': return `${noDot}${globstar}`;
    case '**/*': return `(?:${noDot}${globstar}${slash})?${noDot}${oneChar}${star}`;
    case '**/*.*': return `(?:${noDot}${globstar}${slash})?${noDot}${star}\\.${oneChar}${star}`;
    case '**/.*': return `(?:${noDot}${globstar}${slash})?\\.${oneChar}${star}`;
  }
  const extension = /^([.*].*?)\.(\w+)$/.exec(glob);
  const base = extension && starsOnly(extension[1]);
  return base ? `${base}\\.${extension[2]}` : undefined;
}

// plainGlob handles globs of stars and question marks in one segment that does not begin with a star.
function plainGlob(glob: string): string | undefined {
  if (/(^[*!]|[/()[\]{}"\\])/.test(glob)) return undefined;
  const source = glob.replace(/(\W)\1*/g, (run, first, at) => {
    if (first === '?') return at === 0 ? `[^.\\/]${'[^/]'.repeat(run.length - 1)}` : '[^/]'.repeat(run.length);
    if (first === '*') return star;
    if (first === '.') return '\\.'.repeat(run.length);
    return [...run].map((c) => `\\${c}`).join('');
  });
  return `^(?:${source})$`;
}

// generalGlob reads slashes, double stars, braces, brackets and groups, character by character.
function generalGlob(glob: string): string {
  let out = '';
  let i = 0;
  let last = '';
  const closers: string[] = [];
  while (i < glob.length) {
    const rest = glob.slice(i);
    const start = i === 0 || glob[i - 1] === '/';
    const token = doubleStar(rest, start, i === 0) ?? bracket(rest) ?? opener(rest, closers) ?? closer(rest, closers) ?? single(rest, start);
    out = (token.join ? out.slice(0, -slash.length) : out) + token.text;
    last = token.kind ?? '';
    i += token.length;
  }
  if (closers.length) throw new Error(`the glob ${JSON.stringify(glob)} has an open bracket`);
  return last === 'star' || last === 'bracket' ? `${out}${slash}?` : out;
}

interface Token {
  text: string;
  length: number;
  /** What a final slash may follow. */
  kind?: 'star' | 'bracket';
  /** The token stands for the slash before it, too. */
  join?: boolean;
}

function doubleStar(rest: string, segmentStart: boolean, first: boolean): Token | undefined {
  const stars = /^\*\*+(\/|$)/.exec(rest);
  if (!stars || !segmentStart) return undefined;
  const length = stars[0].length;
  if (first) return stars[1] ? { text: `(?:^|${slash}|${globstar}${slash})`, length } : { text: globstar, length };
  if (stars[1]) return { text: `(?:${slash}${noDot}${globstar}${slash}|${slash}|$)`, length, join: true };
  return { text: `(?:${slash}${noDot}${globstar}|$)`, length, join: true };
}

// bracket keeps a set as it is. A leading `!` does not negate it, `^` does.
function bracket(rest: string): Token | undefined {
  const set = /^\[(?:\\.|[^\]\\])+\]/.exec(rest);
  return set ? { text: `[${set[0].slice(1, -1).replace(/\[/g, '\\[')}]`, length: set[0].length, kind: 'bracket' } : undefined;
}

function opener(rest: string, closers: string[]): Token | undefined {
  const range = /^\{(\w+)\.\.(\w+)\}/.exec(rest);
  if (range) return { text: rangeSource(range[1], range[2]), length: range[0].length };
  const open = /^([@?*+!])?\(|^\{/.exec(rest);
  if (!open) return undefined;
  const brace = open[0] === '{';
  const after: Record<string, string> = { '?': ')?', '*': ')*', '+': ')+', '!': `)$)${star})` };
  closers.push(brace ? '}' : after[open[1] ?? ''] ?? ')');
  const text = open[1] === '!' ? '(?:(?!(?:' : open[1] && open[1] !== '@' ? '(?:' : '(';
  return { text, length: open[0].length };
}

function closer(rest: string, closers: string[]): Token | undefined {
  const top = closers[closers.length - 1];
  if (top === '}' && rest[0] === ',') return { text: '|', length: 1 };
  if (top && top !== '}' && rest[0] === '|') return { text: '|', length: 1 };
  if (top && rest[0] === (top === '}' ? '}' : ')')) {
    closers.pop();
    return { text: top === '}' ? ')' : top, length: 1 };
  }
  return undefined;
}

function single(rest: string, segmentStart: boolean): Token {
  const c = rest[0];
  if (c === '*') return { text: segmentStart ? `${noDot}${oneChar}${star}` : star, length: 1, kind: 'star' };
  if (c === '?') return { text: segmentStart ? '[^.\\/]' : '[^/]', length: 1 };
  if (c === '\\' && rest.length > 1) return { text: rest.slice(0, 2), length: 2 };
  return { text: /[.+$^|/\\()[\]{}]/.test(c) ? `\\${c}` : c, length: 1 };
}

// rangeSource reads `{1..3}` or `{a..c}`, of numbers at most 1,000.
function rangeSource(from: string, to: string): string {
  if (from.length === 1 && to.length === 1) return from <= to ? `[${from}-${to}]` : `[${to}-${from}]`;
  const [a, b] = [Number(from), Number(to)];
  if (!Number.isInteger(a) || !Number.isInteger(b) || Math.abs(a - b) >= 1000) throw new Error(`the range {${from}..${to}} is not one of letters or of at most 1000 numbers`);
  return `(${Array.from({ length: Math.abs(a - b) + 1 }, (_, i) => Math.min(a, b) + i).join('|')})`;
}

/** What `runsOn` says: labels that an agent must and must not have, and how one of several is picked. */
export function readRunsOn(runsOn: any): { labels: LabelMatcher[]; exclude: LabelMatcher[]; pick: string } {
  const whole = runsOn !== null && typeof runsOn === 'object' && !Array.isArray(runsOn) && !(runsOn instanceof RegExp);
  const { labels, exclude = [], pick = 'deterministic' } = whole ? runsOn : { labels: runsOn };
  if (pick !== 'deterministic' && pick !== 'any') throw new Error(`runsOn.pick must be 'deterministic' or 'any', not ${JSON.stringify(pick)}`);
  if (labels === undefined) throw new Error('runsOn needs labels');
  return { labels: toMatchers(labels), exclude: toMatchers(exclude), pick };
}

/** What `runsOnAll` says: hosts that fit one of the groups and none of the excludes. */
export function readRunsOnAll(runsOnAll: any): { include: LabelMatcher[][]; exclude: LabelMatcher[] } {
  if (Array.isArray(runsOnAll)) {
    const negative = (l: unknown) => typeof l === 'string' && l.startsWith('!');
    const include = runsOnAll.filter((l) => !negative(l)).map(toMatcher);
    return { include: include.length ? [include] : [], exclude: runsOnAll.filter(negative).map((l) => toMatcher(l.slice(1))) };
  }
  if (typeof runsOnAll === 'string' || runsOnAll instanceof RegExp) return { include: [[toMatcher(runsOnAll)]], exclude: [] };
  if (!Array.isArray(runsOnAll?.include)) throw new Error('runsOnAll must be a label, a list of labels or {include: [{all: [...]}]}');
  return {
    include: runsOnAll.include.map((group: any) => {
      if (group?.all === undefined) throw new Error('a group of runsOnAll.include must be {all: [...]}');
      return toMatchers(group.all);
    }),
    exclude: toMatchers(runsOnAll.exclude ?? []),
  };
}
