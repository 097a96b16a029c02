// Rules: conditions under which a job or a step runs.

import { shown } from './report';
import { blamed, mark } from './site';

/** A condition with a label. Without a check it is always true. */
function makeRule(label: string, check: any = () => true): any {
  return blamed(mark({ _tag: 'Rule', label, check }), notCheck(check));
}

/** The opposite of a rule: the job or step is left out when the check is true. */
function makeSkip(label: string, check: any): any {
  return blamed(mark({ _tag: 'Rule', label, check: async (context: unknown) => !(await check(context)) }), notCheck(check));
}

const notCheck = (check: unknown) => (typeof check === 'function' ? undefined : `needs a function as its check, not ${shown(check)}`);


/** True on the first host of a fan-out and outside of one. */
export function onlyOnFirstHost(): any {
  return makeRule('fanout: first host only', ({ fanout }: any) => fanout === undefined || fanout.first === true);
}

/** True on the last host of a fan-out and outside of one. */
export function onlyOnLastHost(): any {
  return makeRule('fanout: last host only', ({ fanout }: any) => fanout === undefined || fanout.last === true);
}

/** True on the host of that index in a fan-out. Outside of one the index counts as 0. */
export function onlyOnFanoutIndex(index: number): any {
  const wrong = Number.isInteger(index) && index >= 0 ? undefined : `needs the index of a host, a whole number of at least 0, not ${shown(index)}`;
  return blamed(makeRule(`fanout: index ${shown(index)} only`, ({ fanout }: any) => (fanout?.index ?? 0) === index), wrong);
}

/** Whether the event is of that type; narrows its type in TypeScript. */
export function isEventType(envelope: any, type: string): boolean {
  return envelope?.type === type;
}

export { makeRule as rule, makeSkip as skip };
