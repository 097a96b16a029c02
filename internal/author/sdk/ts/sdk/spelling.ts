// Slips of the hand: what an author perhaps meant.

/** "did you mean" for a word, if one of the candidates is near. What is no text is no slip. */
export function suggest(word: unknown, candidates: string[]): string | undefined {
  const near = typeof word === 'string' ? nearest(word, candidates) : undefined;
  return near && `did you mean '${near}'?`;
}

/** The candidate most like the word, if one is near enough to be a slip of the hand. */
export function nearest(word: string, candidates: string[]): string | undefined {
  let best: string | undefined;
  let least = Math.min(Math.max(1, Math.floor(word.length / 3)) + 1, word.length); // of one letter, nothing is left to be meant
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
