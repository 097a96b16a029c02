// `ctx.attestProvenance`: says, so that it can be verified, which run and job made a file or an image.

import { host } from './host';
import type { Job } from './job';

const defaultAudience = 'kici-provenance';

interface Receipt {
  storageKey: string;
  subjectDigest: string;
  bundleMediaType: string;
}

/** Attests the subject and stores the bundle with the run. */
export async function attestProvenance(job: Job, options: any): Promise<Receipt> {
  const { subject, audience = defaultAudience } = options ?? {};
  const name = subject?.name;
  if (typeof name !== 'string' || name === '') throw new Error('attestProvenance needs a subject with a name');
  const digest = await digestOf(job, subject);
  const { token } = await job.kici.oidc.token({ audience });
  const { file, mediaType } = await host.call('attest', { token, name, digest });
  const { uploadUrl } = await job.agent.ask('provenance.request', { op: 'requestUploadUrl', subjectDigest: digest }, 'attest provenance');
  if (!uploadUrl) throw new Error('attest provenance: the server has no place for it');
  await host.call('upload', { url: uploadUrl, file });
  await job.agent.ask('provenance.request', { op: 'complete', subjectName: name, subjectDigest: digest, mediaType }, 'attest provenance');
  return { storageKey: `provenance/${job.request.runId}/${job.request.jobId}/${digest}.kici.json`, subjectDigest: digest, bundleMediaType: mediaType };
}

/** The SHA-256 of the subject: given, as text or by its algorithm, or that of its file. */
async function digestOf(job: Job, { digest, path }: any): Promise<string> {
  if ((digest === undefined) === (path === undefined)) throw new Error('the subject of attestProvenance needs either a path or a digest');
  if (path !== undefined) return host.call('digest', { root: job.boot.cwd, path: String(path) });
  const hex = typeof digest === 'string' ? digest.replace(/^sha256:/, '') : digest?.sha256;
  if (typeof hex !== 'string' || !/^[0-9a-f]{64}$/.test(hex)) throw new Error('the digest of attestProvenance must be a SHA-256 in lower-case hexadecimal: {sha256: …}');
  return hex;
}
