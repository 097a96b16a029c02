// `ctx`: what a step's functions see.

import { checkVariables, createStepSecrets, jobOutputs, outputsOf, shown } from '@kici-dev/sdk/runtime';
import { artifactsApi } from './artifact';
import { cacheApi } from './cache';
import { filesApi } from './files';
import { host } from './host';
import type { Job, Unit } from './job';
import { attestProvenance } from './provenance';
import { shell, type ShellScope } from './shell';
import type { Signal } from './signal';

/** The context of one step, and what the runner does with it after the step. */
export interface StepContext {
  ctx: any;
  scope: ShellScope;
  accessed(): string[];
  /** Takes files and variables of secrets away again. */
  dispose(): Promise<void>;
}

/** Makes the context of a step or of a hook; `logName` stands before its log lines. */
export function makeContext(job: Job, index: number, logName: string, signal: Signal, variables: Record<string, string> = {}): StepContext {
  const { request } = job;
  const scope: ShellScope = { ...job.scope(index, signal), signal };
  Object.assign(scope.env, variables);
  const env = { ...scope.env };
  let secretDir = '';
  const secrets = createStepSecrets({
    secrets: request.secrets, namespacedSecrets: request.namespacedSecrets, meta: request.secretMeta,
    host: {
      // Commands of this very step see it, too: who exposes a secret is about to use it.
      setEnv: (name, value) => { job.env.put(name, value); scope.env[name] = env[name] = value; },
      unsetEnv: (name) => { job.env.unset(name); delete scope.env[name]; delete env[name]; },
      writeFile: async (name, content, mode) => {
        const made = await host.call('writeSecret', { dir: secretDir, name, content, mode });
        secretDir = made.dir;
        return made.path;
      },
      reportMount: (mount) => host.emit({ type: 'step.secret_mount', stepIndex: index, ...mount }),
    },
  });
  const ctx: any = {
    $: shell(scope),
    files: filesApi(scope.cwd),
    log: job.logger(index, logName),
    signal,
    env,
    setEnv: (name: string, value: unknown) => {
      checkVariables({ [name]: value }, 'setEnv');
      if (job.env.set(name, String(value), index)) env[name] = String(value);
    },
    addPath: (dir: string) => {
      if (typeof dir !== 'string' || dir === '') throw new TypeError(`addPath needs a folder, not ${shown(dir)}`);
      job.env.addPath(dir);
      env.PATH = job.env.snapshot().PATH;
    },
    inputs: {},
    dispatchInputs: request.dispatchInputs ?? {},
    secrets: secrets.api,
    workflow: { name: request.workflowName },
    job: { name: request.jobName, runsOn: request.runsOn ?? job.job?.runsOn },
    isTestRun: request.isTestRun ?? false,
    emit: (event: any, payload?: unknown, options?: any) => job.agent.emitEvent(event, payload, options),
    outputsOf,
    jobOutputs,
    setSecretOutput: (key: string, value: string) => job.setSecretOutput(key, value),
    kici: job.kici,
    cache: cacheApi(job, index),
    artifacts: artifactsApi(job, index, logName),
    attestProvenance: (options: unknown) => attestProvenance(job, options),
  };
  const optional: Record<string, unknown> = {
    matrix: request.matrixValues, host: request.host, agent: request.agent, fanout: job.fanout, rawPayload: job.event.payload,
    provider: request.provider, environment: request.environment, needs: job.needs, ...repositories(job),
  };
  for (const [key, value] of Object.entries(optional)) if (value !== undefined) ctx[key] = value;
  return {
    ctx, scope, accessed: () => secrets.accessed(),
    dispose: async () => {
      secrets.dispose();
      if (secretDir) await host.call('remove', { dir: secretDir });
    },
  };
}

// A global workflow works with two repositories: its own and the one the event came from.
function repositories(job: Job): Record<string, unknown> {
  const { request } = job;
  if (!request.isGlobalWorkflow) return {};
  return {
    workflowRepo: { identifier: request.workflowRepoIdentifier, path: `${request.workDir}/workflow`, ref: request.workflowRef, sha: request.workflowSha },
    sourceRepo: { identifier: request.repoIdentifier, path: `${request.workDir}/source`, ref: request.ref, sha: request.sha },
  };
}

/** What rules see. */
export function ruleContext(job: Job, unit?: Unit): any {
  const { request } = job;
  return {
    event: job.event, changedFiles: job.event.changedFiles ?? [], env: job.env.snapshot(), dispatchInputs: request.dispatchInputs ?? {},
    ...(job.fanout && { fanout: job.fanout }), $: shell(job.scope(unit?.index ?? -1, job.steps.signal)),
  };
}
