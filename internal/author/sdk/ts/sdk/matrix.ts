// Matrices and dependency graphs, as servers expand and check them.

type Combination = Record<string, string>;

/** All combinations of a matrix: of a list one `{value}` each, of a map every choice of one value per dimension, the
 * dimensions in name order, the last varying fastest. */
export function expandMatrix(matrix: string[] | Record<string, string[]>): Combination[] {
  if (Array.isArray(matrix)) return matrix.map((value) => ({ value }));
  const names = Object.keys(matrix).sort(compareNames);
  if (names.length === 0) return [];
  return names.reduce<Combination[]>(
    (all, name) => all.flatMap((c) => matrix[name].map((value) => ({ ...c, [name]: value }))),
    [{}],
  );
}

/** Removes the combinations that an exclude entry is part of, then adds the include entries that are not there yet. */
export function applyIncludeExclude(all: Combination[], include?: Combination[] | null, exclude?: Combination[] | null): Combination[] {
  const covers = (part: Combination, c: Combination) => Object.keys(part).length > 0 && Object.keys(part).every((k) => c[k] === part[k]);
  const kept = all.filter((c) => !(exclude ?? []).some((part) => covers(part, c)));
  const known = new Set(kept.map(identity));
  for (const extra of include ?? []) {
    if (Object.keys(extra).length === 0 || known.has(identity(extra))) continue;
    known.add(identity(extra));
    kept.push(extra);
  }
  return kept;
}

function identity(c: Combination): string {
  return JSON.stringify(Object.keys(c).sort().map((k) => [k, c[k]]));
}

// Punctuation sorts before digits and those before letters, in this order.
const punctuation = '_-,;:!?.\'"()[]{}@*/\\&#%`^+<=>|~$';

// compareNames is the order of names that servers use, for the names people write: letters without regard to accent
// and case first, then accents, then lower case before upper case.
function compareNames(a: string, b: string): number {
  const base = (s: string) => [...s.normalize('NFD')].filter((c) => !/\p{M}/u.test(c)).map((c) => weight(c.toLowerCase()));
  return compareLists(base(a), base(b)) || compareText(accents(a), accents(b)) || compareText(swapCase(a), swapCase(b));
}

function weight(c: string): number {
  const at = punctuation.indexOf(c);
  return at >= 0 ? at : 1000 + c.codePointAt(0)!;
}

function compareLists(a: number[], b: number[]): number {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

const accents = (s: string) => s.normalize('NFD').toLowerCase();
const compareText = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
const swapCase = (s: string) => [...s].map((c) => (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase())).join('');

/** One mistake in a graph of jobs. */
export interface DagProblem {
  code: 'E101' | 'E102' | 'E103';
  node: string;
  message: string;
  /** A name that was perhaps meant. */
  suggestion?: string;
  /** What else would help. */
  hint: string;
}

/** Checks a graph: every need exists, none is the node itself, and there is no circle, whose path the message names. */
export function validateDag(nodes: { name: string; needs?: string[] }[]): DagProblem[] {
  const byName = new Map(nodes.map((n) => [n.name, n]));
  const problems: DagProblem[] = [];
  for (const node of nodes) {
    for (const need of node.needs ?? []) {
      if (need === node.name) problems.push({ code: 'E103', node: node.name, message: `job '${node.name}' needs itself`, hint: 'take it out of needs' });
      else if (!byName.has(need)) {
        problems.push({
          code: 'E101', node: node.name, message: `job '${node.name}' needs unknown job '${need}'`, suggestion: nearest(need, [...byName.keys()]), hint: `add it to jobs, or name one of them: ${some([...byName.keys()])}`,
        });
      }
    }
  }
  const circle = findCircle(nodes, byName);
  if (circle) problems.push({ code: 'E102', node: circle[0], message: `jobs need each other in a circle: ${circle.join(' -> ')}`, hint: 'take one of these needs away' });
  return problems;
}

// some lists names as far as a reader can use.
const some = (names: string[]) => (names.length > 10 ? [...names.slice(0, 10), '…'] : names).join(', ');

// findCircle walks depth first without recursion, so that a chain of thousands of jobs does not end the stack.
function findCircle(nodes: { name: string; needs?: string[] }[], byName: Map<string, { needs?: string[] }>): string[] | undefined {
  const done = new Set<string>();
  for (const start of nodes) {
    const path: { name: string; next: number }[] = [];
    const onPath = new Set<string>();
    const enter = (name: string) => { path.push({ name, next: 0 }); onPath.add(name); };
    if (!done.has(start.name)) enter(start.name);
    while (path.length > 0) {
      const top = path[path.length - 1];
      const need = byName.get(top.name)?.needs?.[top.next++];
      if (need === undefined) {
        done.add(top.name);
        onPath.delete(top.name);
        path.pop();
      } else if (onPath.has(need) && need !== top.name) {
        return [...path.slice(path.findIndex((p) => p.name === need)).map((p) => p.name), need];
      } else if (byName.has(need) && !done.has(need) && need !== top.name) enter(need);
    }
  }
  return undefined;
}

/** The candidate most like the word, if one is near enough to be a slip of the hand. */
export function nearest(word: string, candidates: string[]): string | undefined {
  let best: string | undefined;
  let least = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const c of candidates) {
    const d = distance(word.toLowerCase(), c.toLowerCase());
    if (d < least) [best, least] = [c, d];
  }
  return best;
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two words.
function distance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, i) => i)];
  for (let i = 1; i <= a.length; i++) {
    rows.push([i]);
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      rows[i][j] = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) rows[i][j] = Math.min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.length][b.length];
}
