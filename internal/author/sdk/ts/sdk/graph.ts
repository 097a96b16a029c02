// The graph of what jobs need, as the compiler checks it.

import { nearest } from './spelling';

/** One mistake in a graph of jobs. */
export interface DagProblem {
  code: 'E101' | 'E102' | 'E103';
  node: string;
  message: string;
  /** The name that is not known. */
  need?: string;
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
        const others = [...byName.keys()].filter((name) => name !== node.name);
        problems.push({
          code: 'E101', node: node.name, message: `job '${node.name}' needs unknown job '${need}'`, need, suggestion: nearest(need, others),
          hint: others.length > 0 ? `add it to jobs, or name one of them: ${some(others)}` : 'add it to jobs',
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
