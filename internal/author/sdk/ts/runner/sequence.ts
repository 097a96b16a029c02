// The steps of a job in their order, one after the other or in groups side by side.

import type { Job, Node, StepResult, Unit } from './job';
import { announcePending, runStep, skipCancelled } from './step';
import { AbortError, controller } from './signal';

/** Runs the steps until one fails hard. What comes after it does not run and has no result. */
export async function runSteps(job: Job): Promise<void> {
  for (const node of job.nodes) {
    if (job.steps.signal.aborted) return;
    if (!(await runNode(job, node))) return;
  }
}

/** Runs a step or a group; false ends the sequence. */
async function runNode(job: Job, node: Node): Promise<boolean> {
  if ('group' in node) return runGroup(job, node.group, node.units);
  const result = await runStep(job, node.unit, job.steps.signal);
  return result.status !== 'failed' && result.status !== 'cancelled' || node.unit.step.continueOnError === true && result.status === 'failed';
}

/** Runs the children of a group, at most maxParallel at once. With failFast the first hard failure ends the others. */
async function runGroup(job: Job, group: { failFast: boolean; maxParallel: number }, units: Unit[]): Promise<boolean> {
  const siblings = controller(job.steps.signal);
  const queue = [...units];
  let failed = false;
  units.slice(group.maxParallel).forEach(announcePending);
  const worker = async () => {
    for (let unit = queue.shift(); unit; unit = queue.shift()) {
      if (siblings.signal.aborted) {
        skipCancelled(job, unit);
        continue;
      }
      const result = await runStep(job, unit, siblings.signal);
      if (!failsHard(unit, result)) continue;
      failed = true;
      if (group.failFast) siblings.abort(new AbortError(`sibling step '${unit.name}' failed`));
    }
  };
  await Promise.all(units.slice(0, group.maxParallel).map(worker));
  return !failed && !job.steps.signal.aborted;
}

function failsHard(unit: Unit, result: StepResult): boolean {
  return result.status === 'failed' && unit.step.continueOnError !== true;
}

/** Whether the job has failed: by any failed step, except that one in a group may be allowed to. */
export function failedStep(job: Job): StepResult | undefined {
  return job.results.find((r) => {
    const unit = job.units[r.stepIndex];
    return r.status === 'failed' && !(unit.group && unit.step.continueOnError === true);
  });
}
