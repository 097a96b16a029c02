// `ctx.artifacts`: what a run leaves behind. Unlike a cache, an artifact that cannot be kept fails the step.

import { host, log } from './host';
import type { Job } from './job';

interface Kept { name: string; sizeBytes: number; sha256: string; files: number }

/** Who has a name: a step and its attempt. What the attempt before it has uploaded, a step may upload anew. */
export interface Holder { step: string; index: number; attempt: object }

const archive = /\.(tar\.gz|tgz)$/;

/** `ctx.artifacts` of one attempt of a step. */
export function artifactsApi(job: Job, index: number, step: string): any {
  const holder: Holder = { step, index, attempt: {} };
  return { upload: (spec: any) => upload(job, holder, spec) };
}

async function upload(job: Job, holder: Holder, spec: any): Promise<Kept> {
  const { name: asked, paths } = read(spec);
  const found: { packed: boolean; files: number; size: number } = await host.call('findArtifact', { root: job.boot.cwd, paths });
  const name = found.packed && !archive.test(asked) ? `${asked}.tar.gz` : asked;
  const before = job.artifacts.get(name);
  if (before && (before.index !== holder.index || before.attempt === holder.attempt)) {
    throw new Error(`artifact '${name}' has been uploaded already, by step '${before.step}'`);
  }
  job.artifacts.set(name, holder);
  try {
    const what = `artifact '${name}'`;
    const place = await job.agent.ask('artifact.request', { op: 'begin', name, sizeBytes: found.size }, what);
    const put: { size: number; sha256: string } = await host.call('putArtifact', {
      root: job.boot.cwd, paths, maxBytes: place.maxBytes ?? 0, url: place.uploadUrl ?? '', saveTo: place.saveTo ?? '',
    });
    await job.agent.ask('artifact.request', { op: 'commit', uploadId: place.uploadId, sha256: put.sha256, sizeBytes: put.size }, what);
    log(holder.index, `[kici] ${what}: ${found.files} ${found.files === 1 ? 'file' : 'files'}, ${put.size} bytes`);
    return { name, sizeBytes: put.size, sha256: put.sha256, files: found.files };
  } catch (e) {
    if (before) job.artifacts.set(name, before);
    else job.artifacts.delete(name);
    throw e;
  }
}

function read(spec: any): { name: string; paths: string[] } {
  const { name, paths } = spec ?? {};
  if (typeof name !== 'string' || name === '') throw new Error('artifacts.upload needs a name');
  const list = typeof paths === 'string' ? [paths] : paths;
  if (!Array.isArray(list) || list.length === 0 || list.some((p) => typeof p !== 'string' || p === '')) {
    throw new Error(`artifacts.upload '${name}': paths must be a path or a list of paths`);
  }
  return { name, paths: [...list] };
}
