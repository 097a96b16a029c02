// Jobs that work for others: they compute what of a job only its functions tell, or the jobs of a generator.

import { combinations, concurrencyGroup, contextNames, variables } from './fields';
import { generatedJobs } from './generator';
import { host, jobLog, log } from './host';
import type { Job } from './job';
import { describeError, trace } from './outcome';

/** How much of a failure a server keeps. */
const maxMessage = 2000;

/** Whether the request is for such a job. */
export function helps(job: Job): boolean {
  return Boolean(job.request.initOnly || job.request.dynamicJobFn);
}

/** Computes what is asked for and reports it; true when it could be. */
export async function help(job: Job, module: object): Promise<boolean> {
  let status = 'success';
  let result: object;
  try {
    job.findWorkflow(module);
    result = job.request.initOnly ? { initResult: await initResult(job) } : { dynamicJobs: await generatedJobs(job) };
  } catch (e: any) {
    const { message } = describeError(e);
    trace(jobLog, `[kici] ${message}`, e);
    status = 'failed';
    result = { error: message, ...(e?.category && { initFailure: { scope: 'job', category: e.category, message: message.slice(0, maxMessage), jobName: e.jobName } }) };
  }
  host.emit({ type: 'job.complete', status, stepResults: [], ...result });
  return status === 'success';
}

/** The parts of the target that are asked for. */
async function initResult(job: Job): Promise<object> {
  const { request } = job;
  const ms = request.timeoutMs;
  const made = job.findStatic(request.targetJobName ?? '');
  const asked = Object.entries({
    environment: request.dynamicEnvironment, env: request.dynamicEnv, concurrencyGroup: request.dynamicConcurrencyGroup, matrix: request.dynamicMatrix,
  }).flatMap(([name, wanted]) => (wanted ? [name] : []));
  log(jobLog, `[kici] Evaluating ${asked.join(', ') || 'nothing'} of job '${made.name}'`);
  return {
    ...(request.dynamicEnvironment && { environmentNames: await contextNames(job, made, ms) }),
    ...(request.dynamicEnv && { env: await variables(job, made, ms) }),
    ...(request.dynamicConcurrencyGroup && { concurrencyGroup: await concurrencyGroup(job, made, ms) }),
    ...(request.dynamicMatrix && { matrixValues: await combinations(job, made, ms) }),
  };
}
