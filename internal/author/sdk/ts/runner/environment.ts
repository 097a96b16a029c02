// The variables of the job: what its steps and their commands see, and how steps change it.

import { host, jobLog, log } from './host';

/** Variables of one job. Commands of a step see them as they were when the step began. */
export class Environment {
  private readonly values: Record<string, string>;

  constructor(initial: Record<string, string>, private readonly secretKeys: Set<string>) {
    this.values = { ...initial };
  }

  /** A copy. */
  snapshot(): Record<string, string> {
    return { ...this.values };
  }

  /** Sets a variable for later steps; the process of this script sees it at once. A secret's name is refused. */
  set(name: string, value: string, logTo: number): boolean {
    if (this.secretKeys.has(name)) {
      log(logTo, `[kici] Cannot override operator secret "${name}" with a variable; its value is kept`);
      return false;
    }
    this.put(name, value);
    return true;
  }

  /** Sets a variable without asking, such as an exposed secret. */
  put(name: string, value: string): void {
    this.values[name] = value;
    const process = (globalThis as any)['process'];
    if (process?.env) process.env[name] = value;
  }

  unset(name: string): void {
    delete this.values[name];
    const process = (globalThis as any)['process'];
    if (process?.env) delete process.env[name];
  }

  /** Puts directories in front of PATH; the first of them ends first. */
  addPath(...dirs: string[]): void {
    this.put('PATH', [...dirs, ...(this.values.PATH ? [this.values.PATH] : [])].join(':'));
  }
}

/** The pair of files by which a step's commands set variables and directories. */
export interface StepFiles {
  dir: string;
  env: string;
  path: string;
}

export function makeStepFiles(): Promise<StepFiles> {
  return host.call('stepFiles');
}

/** Reads what the step's commands wrote, applies it and removes the files. */
export async function applyStepFiles(files: StepFiles, env: Environment): Promise<void> {
  const text: { env?: string; path?: string } = await host.call('readStepFiles', { dir: files.dir });
  for (const [name, value] of parseVariables(text.env ?? '')) env.set(name, value, jobLog);
  const dirs = (text.path ?? '').split('\n').map((d) => d.trim()).filter((d) => d !== '');
  if (dirs.length) env.addPath(...dirs);
}

/** Lines `KEY=value`: trimmed, split at the first `=`, the value as it stands; others are ignored, the last one wins. */
export function parseVariables(text: string): Map<string, string> {
  const variables = new Map<string, string>();
  for (const raw of text.split('\n')) {
    const line = raw.trim();
    const at = line.indexOf('=');
    const name = at > 0 ? line.slice(0, at).trim() : '';
    if (name) variables.set(name, line.slice(at + 1));
  }
  return variables;
}
