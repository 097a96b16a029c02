// Talking with the agent: questions that it answers, and its orders.

import { kindOf, shown } from '@kici-dev/sdk/runtime';
import { host, timer } from './host';

/** How long each kind of question may take, in milliseconds. */
const limits: Record<string, number> = {
  'event.emit': 5_000,
  'agent.api.request': 15_000,
  'cache.request': 30_000,
  'provenance.request': 30_000,
  'artifact.request': 130_000, // it is asked again when the server comes back
  'approval.request': 7 * 24 * 3600 * 1000,
};

export class AgentTimeoutError extends Error {
  constructor(readonly requestId: string, what: string) {
    super(`${what}: the agent gave no answer in time`);
    this.name = 'AgentTimeoutError';
  }
}

/** The agent, as one job sees it. */
export class Agent {
  private readonly waiting = new Map<string, (answer: any) => void>();
  private readonly acks: any[] = [];
  private ackWaiter?: (ack: any) => void;
  private count = 0;

  constructor(private readonly nonce: string, private readonly onAbort: (force: boolean) => void) {}

  /** Reads the agent's messages until the job ends; it is not to be awaited. */
  async listen(): Promise<void> {
    for (;;) {
      let message: any;
      try {
        message = await host.receive();
      } catch {
        return; // the host ends
      }
      if (message.type === 'abort') this.onAbort(message.force === true);
      else if (message.type === 'concurrency.ack') this.acknowledge(message);
      else {
        this.waiting.get(message.requestId)?.(message);
        this.waiting.delete(message.requestId);
      }
    }
  }

  private acknowledge(ack: any): void {
    if (this.ackWaiter) {
      this.ackWaiter(ack);
      this.ackWaiter = undefined;
    } else this.acks.push(ack);
  }

  /** The next answer to the report of a concurrency group; undefined when none comes in time, or before the job is ended. */
  async nextAck(ms: number, signal: { aborted: boolean; addEventListener: any; removeEventListener: any }): Promise<any> {
    if (this.acks.length) return this.acks.shift();
    if (signal.aborted) return undefined;
    const late = timer(ms);
    signal.addEventListener('abort', late.cancel);
    const answer = new Promise<any>((resolve) => { this.ackWaiter = resolve; });
    try {
      return await Promise.race([answer, late.passed.then(() => undefined)]);
    } finally {
      this.ackWaiter = undefined;
      signal.removeEventListener('abort', late.cancel);
      late.cancel();
    }
  }

  /** Asks and waits for the answer. Throws AgentTimeoutError, or an Error with what the agent says went wrong. */
  async ask(type: string, fields: object, what: string): Promise<any> {
    const requestId = `${this.nonce}-${++this.count}`;
    const answer = new Promise<any>((resolve) => { this.waiting.set(requestId, resolve); });
    host.emit({ type, requestId, ...fields });
    const late = timer(limits[type]);
    const reply = await Promise.race([answer, late.passed.then(() => undefined)]);
    late.cancel();
    this.waiting.delete(requestId);
    if (reply === undefined) throw new AgentTimeoutError(requestId, what);
    if (reply.error && type !== 'approval.request') throw new Error(`${what}: ${reply.error}`);
    return reply;
  }

  async api(method: string, params: object = {}): Promise<any> {
    return (await this.ask('agent.api.request', { method, params }, method)).result;
  }

  /** `ctx.emit`: the receipt says under which id the event was stored, or which request got no answer. An event made with
   * defineEvent has its payload checked. */
  async emitEvent(event: string | { name: string; schema?: any }, payload: unknown = {}, options: { target?: { repos?: string[] } } = {}): Promise<{ deliveryId: string }> {
    const { name, schema } = typeof event === 'string' ? { name: event, schema: undefined } : event ?? {};
    if (typeof name !== 'string' || name === '') throw new TypeError(`emit needs the name of an event, or what defineEvent gives, not ${shown(event)}`);
    const target = targetOf(name, options);
    try {
      const checked = schema ? schema.parse(payload) : payload;
      if (kindOf(checked) !== 'object') throw new TypeError(`emit ${name}: the payload must be an object, not ${shown(checked)}`);
      const { deliveryId } = await this.ask('event.emit', { eventName: name, payload: checked, ...(target && { target }) }, `emit ${name}`);
      return { deliveryId };
    } catch (e) {
      if (e instanceof AgentTimeoutError) return { deliveryId: `timeout-${e.requestId}` };
      throw e;
    }
  }
}

// targetOf gives the repositories that an event is for. What names none would go to all.
function targetOf(name: string, options: any): { repos?: string[] } | undefined {
  const [unknown] = Object.keys(options ?? {}).filter((key) => key !== 'target');
  if (unknown !== undefined) throw new TypeError(`emit ${name} has no option '${unknown}', only target: { repos: [...] }`);
  const target = options?.target;
  if (target === undefined) return undefined;
  const repos = target?.repos;
  const right = kindOf(target) === 'object' && (repos === undefined || Array.isArray(repos) && repos.every((r) => typeof r === 'string'));
  if (!right) throw new TypeError(`emit ${name}: target must be { repos: [...] }, not ${shown(target)}`);
  return target;
}

// idOf refuses what is no id of an agent.
function idOf(what: string, id: unknown): string {
  if (typeof id !== 'string' || id === '') throw new TypeError(`${what} needs the id of an agent, not ${shown(id)}`);
  return id;
}

// optionsOf refuses what is no map.
function optionsOf(what: string, options: unknown): object {
  if (kindOf(options) !== 'object') throw new TypeError(`${what} takes a map, not ${shown(options)}`);
  return options as object;
}

const maxAudience = 255;

/** `ctx.kici`. Tokens are masked before the step gets them. */
export function kiciApi(agent: Agent, jobId: string): any {
  return {
    infrastructure: { list: () => agent.api('infrastructure.list') },
    inventory: {
      query: async (selector: object = {}) => agent.api('inventory.query', optionsOf('inventory.query', selector)),
      get: async (agentId: string) => agent.api('inventory.get', { agentId: idOf('inventory.get', agentId) }),
    },
    oidc: {
      token: async (options: { audience: string }) => {
        const audience: unknown = options?.audience;
        if (typeof audience !== 'string' || audience === '' || audience.length > maxAudience) throw new TypeError(`oidc.token needs an audience of 1 to ${maxAudience} characters, not ${shown(audience)}`);
        const result = await agent.api('oidc.token.request', { jobId, audience });
        const token = typeof result === 'string' ? result : result?.token;
        if (typeof token === 'string') host.emit({ type: 'kici.mask', values: [token] });
        return result;
      },
    },
    host: { requestReboot: async (options: object = {}) => void (await agent.api('host.requestReboot', optionsOf('host.requestReboot', options))) },
    bootstrap: {
      ensureInitRunner: async (id: string) => agent.api('kici.ensureInitRunner', { targetAgentId: idOf('bootstrap.ensureInitRunner', id) }),
      preBootSend: async (id: string, options: any) => {
        const targetAgentId = idOf('bootstrap.preBootSend', id);
        if (typeof options?.inputSecret !== 'string') throw new TypeError(`bootstrap.preBootSend needs an inputSecret, the name of a secret, not ${shown(options?.inputSecret)}`);
        await agent.api('kici.preBootSend', { targetAgentId, ...options });
      },
    },
  };
}
