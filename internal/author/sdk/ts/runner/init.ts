// The init phase: toolchains that a job asks for before its first step.

import { restoreCaches, saveCaches } from './cache';
import { applyStepFiles, makeStepFiles } from './environment';
import { host, jobLog, log } from './host';
import type { Job } from './job';
import { attempt, describeError } from './outcome';
import { shell } from './shell';
import { controller } from './signal';

const firstIndex = 1_000_000;
const defaultMs = 600_000;
const miseFiles = ['mise.toml', '.mise.toml', '.tool-versions'];

interface Init {
  run: string;
  shell: string;
  timeout: number;
  env: Record<string, string>;
  cache?: any;
  /** A script that prints variables for the steps, as JSON. */
  variables?: string;
}

// Installs mise where it is missing, then the tools; later steps get its variables, and its shims on PATH.
const miseScript = `
export PATH="$HOME/.local/bin:$PATH"
command -v mise >/dev/null || curl -fsSL https://mise.run | sh
mise trust --yes --all
mise install --yes
echo "\${MISE_DATA_DIR:-$HOME/.local/share/mise}/shims" >> "$KICI_PATH"`;

const miseVariables = 'PATH="$HOME/.local/bin:$PATH" mise env --json';

/** Runs the job's init. Throws with the job's error when it fails. */
export async function runInit(job: Job): Promise<void> {
  const { init } = job.job;
  if (init === undefined || init === false) return;
  const list = Array.isArray(init) ? init : [init];
  for (const [n, entry] of list.entries()) {
    const one = await read(job, entry, n);
    if (one) await runOne(job, one, n);
  }
}

async function read(job: Job, entry: any, n: number): Promise<Init | undefined> {
  if (entry === false) return undefined;
  if (entry === 'auto' || entry === 'mise') {
    const found = await miseMarkers(job);
    if (entry === 'auto' && found.length === 0) {
      log(jobLog, '[kici] init: no tool versions are declared in the repository; nothing to install');
      return undefined;
    }
    return mise(job, {}, found);
  }
  if (entry?.mise !== undefined) return mise(job, entry.mise === true ? {} : entry.mise, await miseMarkers(job));
  if (typeof entry?.run !== 'string') throw new Error(`init[${n}] failed: it is neither 'auto', 'mise', {mise} nor {run}`);
  return { run: entry.run, shell: entry.shell ?? 'bash', timeout: entry.timeout ?? defaultMs, env: entry.env ?? {}, cache: entry.cache };
}

async function miseMarkers(job: Job): Promise<string[]> {
  const $ = shell(job.scope(jobLog), { quiet: true });
  return (await $`for f in ${miseFiles}; do if test -f "$f"; then echo "$f"; fi; done`).lines();
}

async function mise(job: Job, options: any, files: string[]): Promise<Init> {
  const $ = shell(job.scope(jobLog), { quiet: true });
  // The key covers names and contents of the files in their order.
  const sum = await $`for f in ${files}; do printf '%s\n' "$f"; cat "$f"; done | sha256sum | cut -c 1-16`.text();
  return {
    run: miseScript, variables: miseVariables, shell: options.shell ?? 'bash', timeout: options.timeout ?? defaultMs, env: options.env ?? {},
    cache: options.cache ?? { key: `mise-${sum.trim()}`, paths: ['~/.local/share/mise'], restoreKeys: ['mise-'] },
  };
}

async function runOne(job: Job, init: Init, n: number): Promise<void> {
  const index = firstIndex + n;
  const name = `init:${n}`;
  const specs = init.cache ? [init.cache].flat() : undefined;
  const caches = await restoreCaches(job, specs, index);
  const files = await makeStepFiles();
  const own = controller(job.steps.signal);
  const scope = job.scope(index, own.signal);
  Object.assign(scope.env, init.env, { KICI_ENV: files.env, KICI_PATH: files.path });
  host.emit({ type: 'step.start', stepIndex: index, stepName: name, step_type: name, state: 'running' });
  const begin = Date.now();
  const $ = shell(scope);
  let variables: Record<string, unknown> = {};
  const work = async () => {
    await $`exec ${init.shell} -c ${init.run}`;
    if (init.variables) variables = await $`exec ${init.shell} -c ${init.variables}`.quiet().json();
  };
  const outcome = await attempt(work, own, scope, init.timeout, `timed out after ${init.timeout}ms`);
  const error = 'error' in outcome ? describeError(outcome.error)
    : 'expired' in outcome ? { message: `timed out after ${init.timeout}ms` }
    : 'aborted' in outcome ? { message: 'aborted' } : undefined;
  host.emit({
    type: 'step.complete', stepIndex: index, stepName: name, step_type: name, status: error ? 'failed' : 'success',
    durationMs: Date.now() - begin, secretsAccessed: [], ...(error && { error }),
  });
  if (error) throw new Error(`init[${n}] failed: ${error.message}`);
  // PATH is that of the preparation; what later steps get of it are the shims.
  for (const [key, value] of Object.entries(variables)) if (key !== 'PATH') job.env.set(key, String(value), jobLog);
  await applyStepFiles(files, job.env);
  await saveCaches(job, caches);
}
