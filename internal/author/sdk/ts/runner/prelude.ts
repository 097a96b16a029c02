// What the embedded engine lacks and workflows may use. It is loaded before the author's module. On node nothing is
// replaced.

import '../web/install';
import { currentStep, host, log, timer, type Timer } from './host';
import { format, show } from './show';

const g = globalThis as any;

function installConsole(): void {
  const write = (...values: any[]) => log(currentStep(), format(values));
  const times = new Map<string, number>();
  const counts = new Map<string, number>();
  const elapsed = (label: string) => `${label}: ${Date.now() - (times.get(label) ?? Date.now())}ms`;
  const count = (label: string) => counts.set(label, (counts.get(label) ?? 0) + 1).get(label);
  g.console = {
    log: write, info: write, warn: write, error: write, debug: write, trace: write, dir: (v: any) => write(show(v)), dirxml: write,
    assert: (ok: any, ...values: any[]) => { if (!ok) write('Assertion failed:', ...values); },
    group: write, groupCollapsed: write, groupEnd: () => {}, table: (v: any) => write(show(v)),
    count: (label = 'default') => write(`${label}: ${count(label)}`), countReset: (label = 'default') => void counts.delete(label),
    time: (label = 'default') => void times.set(label, Date.now()),
    timeLog: (label = 'default', ...values: any[]) => write(elapsed(label), ...values),
    timeEnd: (label = 'default') => {
      write(elapsed(label));
      times.delete(label);
    },
  };
}

// Nobody waits for a timer, so nobody would hear of what it throws: it ends the runner, as on node.
function crash(e: any): void {
  host.emit({ type: 'kici.crash', rejection: false, text: `Uncaught ${show(e)}`, stack: String(e?.stack ?? '') });
}

function installTimers(): void {
  let last = 0;
  const live = new Map<number, Timer>();
  const wait = async (id: number, ms: number, fn: () => void, again: boolean) => {
    do {
      const span = timer(Math.max(again ? 1 : 0, Number(ms) || 0));
      live.set(id, span);
      await span.passed;
      if (!live.has(id)) return;
      if (!again) live.delete(id);
      try {
        fn();
      } catch (e) {
        crash(e);
      }
    } while (again && live.has(id));
  };
  const set = (again: boolean) => (fn: any, ms?: number, ...args: any[]) => {
    const id = ++last;
    void wait(id, ms ?? 0, () => fn(...args), again);
    return id;
  };
  const clear = (id: any) => {
    const span = live.get(id);
    live.delete(id);
    span?.cancel();
  };
  Object.assign(g, { setTimeout: set(false), setInterval: set(true), clearTimeout: clear, clearInterval: clear });
}

if (typeof g.console === 'undefined') installConsole();
if (typeof g.setTimeout === 'undefined') installTimers();
