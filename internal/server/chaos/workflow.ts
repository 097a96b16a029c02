import { job, push, step, workflow } from '@kici-dev/sdk';

// A step of some length: it prints numbered lines, and a script outside of the repository keeps a ledger of when it began
// and ended. One token marks all that one execution of a job does.
const work = (name, lines, pause, code = 0, look = () => {}) => step(name, async (ctx) => {
  const { $, job, matrix, workflow, rawPayload, env, setEnv } = ctx;
  look(ctx);
  const { script, ledger, mark } = rawPayload.chaos;
  const token = env.CHAOS_TOKEN ?? `${env.TMPDIR.split('/').pop()}-${Date.now()}`;
  setEnv('CHAOS_TOKEN', token);
  const child = matrix ? `${job.name} (${matrix.value})` : job.name;
  await $`bash ${script} ${ledger} ${mark} ${workflow.name} ${child} ${name} ${token} ${lines} ${pause} ${code}`;
  return { token };
});

const build = job('build', { runsOn: 'linux', steps: [work('fetch', 3, 0.05), work('make', 8, 0.1)] });
const test = job('test', { runsOn: 'linux', needs: [build], matrix: ['x', 'y', 'z'], maxParallel: 2, steps: [work('run', 6, 0.08)] });
// What the jobs before have left must be there, all of it.
const complete = ({ jobOutputs }) => {
  const children = jobOutputs(test).byMatrix;
  for (const child of ['x', 'y', 'z']) if (!children[child]?.run?.token) throw new Error(`no outputs of ${child}: ${JSON.stringify(children)}`);
};
const pack = job('pack', { runsOn: 'linux', needs: [test], steps: [work('wrap', 2, 0.03, 0, complete), work('sum', 2, 0.03)] });
const tell = job('tell', { runsOn: 'linux', needs: [{ name: pack, when: 'always' }], steps: [work('say', 1, 0.05)] });
const ladder = workflow('ladder', { on: push({ branches: 'main' }), jobs: [build, test, pack, tell] });

const calm = job('calm', { runsOn: 'linux', steps: [work('rest', 4, 0.2), work('shout', 2500, 0)] });
const fragile = job('fragile', { runsOn: 'linux', steps: [work('bend', 2, 0.05), work('break', 2, 0.05, 3), work('never', 1, 0.05)] });
const mend = job('mend', { runsOn: 'linux', needs: [{ name: fragile, when: 'on-failure' }], steps: [work('glue', 3, 0.1)] });
const vain = job('vain', { runsOn: 'linux', needs: [fragile], steps: [work('hope', 1, 0.05)] });
const fan = job('fan', {
  runsOn: 'linux', matrix: ['a', 'b', 'c'], maxParallel: 1, failFast: true, steps: [work('turn', 3, 0.06)],
});
const last = job('last', { runsOn: 'linux', needs: [calm, { name: fan, when: 'always' }], steps: [work('close', 2, 0.05)] });
const storm = workflow('storm', { on: push({ branches: 'main' }), jobs: [calm, fragile, mend, vain, fan, last] });

// One run of it at a time, whichever push it is of.
const lane = workflow('lane', {
  on: push({ branches: 'main' }), concurrency: { group: () => 'lane', cancelInProgress: false, max: 1 },
  jobs: [job('pass', { runsOn: 'linux', steps: [work('drive', 3, 0.08)] })],
});

export default [ladder, storm, lane];
