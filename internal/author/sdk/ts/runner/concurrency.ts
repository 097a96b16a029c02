// The workflow's concurrency group: its name is the author's function of the event, its slot the orchestrator's to give.

import { evaluate } from './evaluate';
import { host, jobLog, log } from './host';
import type { Job } from './job';

const evaluationMs = 30_000;
const answerMs = 30_000;
const waitMs = 3_600_000;

/** Takes the workflow's slot. Throws with the job's error when it is not to run. */
export async function takeSlot(job: Job): Promise<void> {
  const group = job.workflow.concurrency?.group;
  if (!job.request.hasConcurrencyGroup || group === undefined) return;
  const name = await groupName(job, group);
  log(jobLog, `[kici] Concurrency group: ${name}`);
  host.emit({ type: 'concurrency.report', group: name });
  let ack = await job.agent.nextAck(answerMs, job.steps.signal);
  if (ack?.action === 'wait') {
    log(jobLog, `[kici] Concurrency: queued${ack.reason ? ` (${ack.reason})` : ''}, waiting for slot to free`);
    ack = await job.agent.nextAck(job.request.concurrencyWaitTimeoutMs || waitMs, job.steps.signal);
    if (ack?.action === 'wait') throw new Error('Concurrency: unexpected second wait ack');
  }
  if (ack?.action === 'proceed') {
    log(jobLog, '[kici] Concurrency: proceeding with execution');
    return;
  }
  throw new Error(`Cancelled by concurrency policy: ${ack?.reason ?? 'no answer in time'}`);
}

function groupName(job: Job, group: unknown): Promise<string> {
  const about = { failure: 'Concurrency group evaluation failed', ms: job.request.concurrencyEvaluationTimeoutMs || evaluationMs };
  return evaluate(job, about, async () => {
    const name = typeof group === 'function' ? await group({ branch: job.request.branch, event: job.event }) : group;
    if (typeof name !== 'string') throw new Error(`the function gave ${typeof name}, not text`);
    return name;
  });
}
