// Abort signals: those of the platform where it has them, else a small one with the parts that steps use.

export interface Signal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  addEventListener(type: 'abort', listener: (event: any) => void, options?: any): void;
  removeEventListener(type: 'abort', listener: (event: any) => void): void;
}

export interface Controller {
  readonly signal: Signal;
  abort(reason?: any): void;
}

class SmallSignal implements Signal {
  aborted = false;
  reason: any = undefined;
  onabort: ((event: any) => void) | null = null;
  private listeners = new Set<(event: any) => void>();

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }
  addEventListener(type: 'abort', listener: (event: any) => void): void {
    if (type === 'abort') this.listeners.add(listener);
  }
  removeEventListener(_type: 'abort', listener: (event: any) => void): void {
    this.listeners.delete(listener);
  }
  end(reason: any): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const event = { type: 'abort', target: this };
    for (const listener of [this.onabort, ...this.listeners]) listener?.(event);
    this.listeners.clear();
  }
}

/** The error that an aborted signal carries. */
export class AbortError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'AbortError';
  }
}

/** Makes a controller; it is aborted with its parent. */
export function controller(parent?: Signal): Controller {
  const Platform = (globalThis as any)['AbortController'];
  let made: Controller;
  if (Platform) made = new Platform();
  else {
    const signal = new SmallSignal();
    made = { signal, abort: (reason: any = new AbortError('This operation was aborted')) => signal.end(reason) };
  }
  if (parent?.aborted) made.abort(parent.reason);
  else parent?.addEventListener('abort', () => made.abort(parent.reason), { once: true });
  return made;
}
