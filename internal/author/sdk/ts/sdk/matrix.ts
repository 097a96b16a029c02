// Matrices, as servers expand them.

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
