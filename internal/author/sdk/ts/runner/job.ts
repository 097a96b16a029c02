// One job: its request, its steps, and what they share.

import {
  buildNeedsContext, flattenSteps, flatSecrets, nameJobs, normalizeApproval, setJobOutputsMap, setKiciApi, setStepOutputsMap, setStepRefMap, shown,
} from '@kici-dev/sdk/runtime';
import { Agent, kiciApi } from './agent';
import type { Holder } from './artifact';
import { Environment } from './environment';
import { regenerated, type Origin } from './generator';
import { host, jobLog, log, type Boot } from './host';
import { shell, type ShellScope } from './shell';
import { show } from './show';
import { AbortError, controller, type Controller, type Signal } from './signal';

/** The parts of an execute request that this script reads. */
export interface Request {
  runId: string;
  jobId: string;
  workflowName: string;
  jobName: string;
  event?: any;
  branch?: string;
  ref?: string;
  sha?: string;
  secrets?: Record<string, string>;
  namespacedSecrets?: Record<string, Record<string, string>>;
  secretMeta?: Record<string, { backend: string; scope: string }>;
  runPublicKey?: string;
  upstreamJobOutputs?: Record<string, any>;
  upstreamJobStatuses?: Record<string, string>;
  jobNeeds?: any[];
  matrixValues?: any;
  host?: any;
  agent?: any;
  fanoutIndex?: number;
  fanoutTotal?: number;
  dispatchInputs?: Record<string, unknown>;
  environment?: string;
  provider?: string;
  isTestRun?: boolean;
  runsOn?: any;
  checkMode?: 'apply' | 'check' | 'check-fail-on-drift';
  jobTimeoutMs?: number;
  defaultStepTimeoutMs?: number;
  hasConcurrencyGroup?: boolean;
  concurrencyEvaluationTimeoutMs?: number;
  concurrencyWaitTimeoutMs?: number;
  /** Names of the jobs of each group that the job needs. */
  upstreamGroups?: Record<string, string[]>;
  /** Of a generated job: how its generator was called, and what it gave. */
  dynamicSource?: Origin & { expectedJobNames?: string[] };
  /** The variables that the generator of such a job saw. */
  generatorEnv?: Record<string, string>;
  /** Of a job that computes parts of another one: which. */
  initOnly?: boolean;
  targetJobName?: string;
  dynamicEnvironment?: boolean;
  dynamicEnv?: boolean;
  dynamicConcurrencyGroup?: boolean;
  dynamicMatrix?: boolean;
  /** Of a job that calls a generator: where that stands, and what it is called with. */
  dynamicJobFn?: boolean;
  source?: { file?: string; index?: number };
  sourceFile?: string;
  declaredNeeds?: Origin['declaredNeeds'];
  upstreamSnapshot?: Origin['upstreamSnapshot'];
  /** How long each function may take that such a job calls. */
  timeoutMs?: number;
  isGlobalWorkflow?: boolean;
  workDir: string;
  workflowRepoIdentifier?: string;
  workflowRef?: string;
  workflowSha?: string;
  repoIdentifier?: string;
  logLevel?: string;
}

export type Status = 'success' | 'failed' | 'skipped' | 'cancelled';

/** The last state of a step. */
export interface StepResult {
  name: string;
  stepIndex: number;
  status: Status;
  durationMs: number;
  error?: string;
  outputs?: unknown;
}

/** A step and its place in the job. */
export interface Unit {
  name: string;
  index: number;
  step: any;
  group?: { id: string };
}

/** A step, or a group of steps that run side by side. */
export type Node = { unit: Unit } | { group: { id: string; failFast: boolean; maxParallel: number }; units: Unit[] };

const defaultStepTimeoutMs = 30 * 60 * 1000;
const maxSecretOutputs = 20;
const maxSecretOutputBytes = 64 * 1024;

/** Why the job ends early. */
export type Ending = 'cancel' | 'force' | 'timeout';

/** The state of the job that everything works on. */
export class Job {
  readonly startedAt = Date.now();
  readonly env: Environment;
  readonly agent: Agent;
  readonly kici: any;
  readonly needs: any;
  readonly outputs: Record<string, unknown> = {};
  /** Bytes of the outputs of each step, as JSON. */
  readonly outputSizes = new Map<string, number>();
  readonly secretOutputs: Record<string, string> = {};
  readonly artifacts = new Map<string, Holder>();
  readonly results: StepResult[] = [];
  readonly defaultTimeout: number;
  readonly secretKeys: Set<string>;
  /** Aborts the steps; hooks of a cancel have a signal of their own. */
  readonly steps: Controller = controller();
  /** Aborts everything, hooks too. */
  readonly all: Controller = controller();
  ending?: Ending;
  workflow: any;
  job: any;
  units: Unit[] = [];
  nodes: Node[] = [];
  droppedJobs?: string[];

  constructor(readonly request: Request, readonly boot: Boot) {
    this.secretKeys = new Set(Object.keys(flatSecrets(request)));
    this.env = new Environment(boot.env, this.secretKeys);
    this.agent = new Agent(boot.nonce, (force) => this.end(force ? 'force' : 'cancel'));
    this.kici = kiciApi(this.agent, request.jobId);
    this.defaultTimeout = request.defaultStepTimeoutMs || defaultStepTimeoutMs;
    this.needs = buildNeedsContext({
      needs: request.jobNeeds, upstreamJobOutputs: request.upstreamJobOutputs, upstreamJobStatuses: request.upstreamJobStatuses,
      groups: request.upstreamGroups,
    });
    setJobOutputsMap(request.upstreamJobOutputs);
    setStepOutputsMap(this.outputs);
    setKiciApi(this.kici);
  }

  /** Ends the job early. The first reason stands, except that force overrides all. */
  end(why: Ending): void {
    if (this.ending === undefined || why === 'force') this.ending = why;
    const reason = new AbortError(why === 'timeout' ? 'job timeout exceeded' : 'job cancelled');
    if (why !== 'cancel') this.all.abort(reason);
    this.steps.abort(reason);
  }

  /** The event. Some servers give a generated job that of its generator alone. */
  get event(): any { return this.request.event ?? this.request.dynamicSource?.event ?? {}; }
  get label(): string { return this.request.jobName; }

  /** Finds the workflow and the job in the author's module, and lays out the steps. */
  async find(module: object): Promise<void> {
    this.findWorkflow(module);
    this.job = this.request.dynamicSource ? await regenerated(this) : this.findStatic(this.label);
    this.layOut();
  }

  /** Finds the workflow in the author's module. */
  findWorkflow(module: object): void {
    const { workflowName } = this.request;
    this.workflow = workflowsOf(module).find((w) => w.name === workflowName);
    if (!this.workflow) throw new Error(`Workflow '${workflowName}' not found in module exports`);
    nameJobs(this.workflow);
  }

  /** The job of that name which the workflow itself lists. */
  findStatic(name: string): any {
    const found = this.workflow.jobs?.find((j: any) => j?._tag === 'Job' && j.name === name);
    if (!found) throw new Error(`Static job '${name}' not found in workflow '${this.request.workflowName}'`);
    return found;
  }

  private layOut(): void {
    const entries: any[] = this.job.steps ?? [];
    const refs = new Map<object, string>();
    this.units = flattenSteps(entries).map(({ name, step, group }, index) => {
      refs.set(step, name);
      const options = typeof step === 'function' ? { run: step } : step;
      return { name, index, step: options, ...(group !== undefined && { group: { id: `g${group}` } }) };
    });
    setStepRefMap(refs);
    let next = 0;
    this.nodes = entries.map((entry) => {
      if (entry?._tag !== 'ParallelGroup') return { unit: this.units[next++] };
      const units = this.units.slice(next, (next += entry.steps.length));
      const maxParallel = entry.maxParallel ?? units.length;
      return { group: { id: units[0]?.group?.id ?? '', failFast: entry.failFast ?? true, maxParallel }, units };
    });
  }

  /** What a `$` outside of a step's attempt is bound to. */
  scope(stepIndex: number, signal: Signal = this.all.signal): ShellScope {
    return { cwd: this.boot.cwd, env: this.env.snapshot(), stepIndex, signal, running: new Set() };
  }

  /** `ctx.log`; `name` stands before each line, '' for nothing. */
  logger(stepIndex: number, name: string): any {
    const write = (level: string) => (...values: unknown[]) => {
      if (level === 'debug' && this.request.logLevel !== 'debug') return;
      const text = values.map((v) => (v instanceof Error ? v.message : show(v))).join(' ');
      log(stepIndex, `${name && `[${name}] `}${level === 'info' ? '' : `[${level}] `}${text}`);
    };
    return { info: write('info'), warn: write('warn'), error: write('error'), debug: write('debug') };
  }

  get fanout(): { index: number; total: number; first: boolean; last: boolean } | undefined {
    const { fanoutIndex: index, fanoutTotal: total } = this.request;
    return index === undefined || total === undefined ? undefined : { index, total, first: index === 0, last: index === total - 1 };
  }

  setSecretOutput(key: string, value: string): void {
    if (typeof key !== 'string' || key === '') throw new TypeError(`setSecretOutput needs a name, not ${shown(key)}`);
    if (typeof value !== 'string') throw new TypeError(`secret output '${key}' must be text`);
    if (!(key in this.secretOutputs) && Object.keys(this.secretOutputs).length >= maxSecretOutputs) throw new Error(`a job has at most ${maxSecretOutputs} secret outputs`);
    if (byteLength(value) > maxSecretOutputBytes) throw new Error(`secret output '${key}' is over the limit of ${maxSecretOutputBytes} bytes`);
    host.emit({ type: 'kici.mask', values: [value] });
    this.secretOutputs[key] = value;
  }

  /** The last result of a step stands. */
  record(result: StepResult): void {
    const at = this.results.findIndex((r) => r.stepIndex === result.stepIndex);
    if (at >= 0) this.results[at] = result;
    else this.results.push(result);
  }

  /** Asks for an approval and waits. Throws when it is not given. */
  async approve(unit: Unit, payload?: object): Promise<void> {
    const approval = normalizeApproval(unit.step.approval)!;
    log(unit.index, `[kici] Step '${unit.name}' is awaiting approval${approval.reason ? `: ${approval.reason}` : ''}`);
    const reply = await this.agent.ask('approval.request', {
      stepIndex: unit.index, stepName: unit.name, clauses: approval.clauses, reason: approval.reason ?? '',
      ...(approval.timeoutSeconds && { timeoutSeconds: approval.timeoutSeconds }), ...(payload && { payload }),
    }, 'approval').catch((e) => ({ outcome: 'rejected', reason: e.message }));
    if (reply.outcome === 'approved') return;
    if (reply.outcome === 'expired') throw new Error(`Step '${unit.name}' approval expired`);
    const why = reply.reason ?? reply.error;
    throw new Error(`Step '${unit.name}' approval rejected${why ? `: ${why}` : ''}`);
  }
}

/** Workflows of a module: the default export first, be it one or a list, then the named ones. */
function workflowsOf(module: any): any[] {
  const { default: first, ...named } = module;
  return [first, ...Object.values(named)].flat().filter((w: any) => w?._tag === 'Workflow');
}

/** How long a text is in UTF-8. The embedded host has nothing that tells. */
export function byteLength(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 0x7ff && (unit < 0xd800 || unit > 0xdfff)) bytes += 2;
    else if (unit > 0x7f) bytes += 1; // each half of a pair, which has four bytes, too
  }
  return bytes;
}
