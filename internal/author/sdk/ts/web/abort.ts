// AbortController and AbortSignal, with the events that they need.

export interface Signal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
  addEventListener(type: 'abort', listener: (event: any) => void, options?: any): void;
  removeEventListener(type: 'abort', listener: (event: any) => void): void;
}

/** The error that an aborted signal carries. */
export class AbortError extends Error {
  constructor(message = 'This operation was aborted') {
    super(message);
    this.name = 'AbortError';
  }
}

type Listener = ((event: any) => void) | { handleEvent(event: any): void };

/** Things that happen to an object, by their type. */
export class EventTarget {
  #listeners = new Map<string, Map<Listener, { once?: boolean }>>();

  addEventListener(type: string, listener: Listener | null, options?: { once?: boolean } | boolean): void {
    if (!listener) return;
    const list = this.#listeners.get(type) ?? new Map();
    this.#listeners.set(type, list);
    if (!list.has(listener)) list.set(listener, typeof options === 'object' ? options : {});
  }
  removeEventListener(type: string, listener: Listener | null): void {
    if (listener) this.#listeners.get(type)?.delete(listener);
  }
  dispatchEvent(event: any): boolean {
    event.target ??= this;
    (this as any)[`on${event.type}`]?.(event);
    for (const [listener, { once }] of [...(this.#listeners.get(event.type) ?? [])]) {
      if (once) this.removeEventListener(event.type, listener);
      if (typeof listener === 'function') listener.call(this, event);
      else listener.handleEvent(event);
    }
    return !event.defaultPrevented;
  }
}

/** What has happened. */
export class Event {
  readonly type: string;
  readonly cancelable: boolean;
  target: any = null;
  defaultPrevented = false;
  constructor(type: string, options: { cancelable?: boolean } = {}) {
    this.type = String(type);
    this.cancelable = options.cancelable === true;
  }
  preventDefault(): void {
    if (this.cancelable) this.defaultPrevented = true;
  }
}

/** Tells that something is to stop, and why. */
export class AbortSignal extends EventTarget implements Signal {
  aborted = false;
  reason: any = undefined;
  onabort: ((event: any) => void) | null = null;

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  /** A signal that is aborted already. */
  static abort(reason?: any): AbortSignal {
    const signal = new AbortSignal();
    end(signal, reason);
    return signal;
  }
  /** A signal that is aborted after that many milliseconds. */
  static timeout(ms: number): AbortSignal {
    const signal = new AbortSignal();
    setTimeout(() => end(signal, Object.assign(new Error('The operation was aborted due to timeout'), { name: 'TimeoutError' })), ms);
    return signal;
  }
  /** A signal that is aborted with the first of these. */
  static any(signals: Iterable<Signal>): AbortSignal {
    const signal = new AbortSignal();
    for (const one of signals) {
      if (one.aborted) end(signal, one.reason);
      else one.addEventListener('abort', () => end(signal, one.reason), { once: true });
    }
    return signal;
  }
}

function end(signal: AbortSignal, reason: any = new AbortError()): void {
  if (signal.aborted) return;
  signal.aborted = true;
  signal.reason = reason;
  signal.dispatchEvent(new Event('abort'));
}

/** Aborts its signal. */
export class AbortController {
  readonly signal = new AbortSignal();
  abort(reason?: any): void {
    end(this.signal, reason);
  }
}
