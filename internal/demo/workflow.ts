import { job, push, step, workflow } from '@kici-dev/sdk';

const build = job('build', {
  runsOn: 'linux',
  steps: [
    step('version', async ({ $, log }) => {
      const version = (await $`date +%Y.%m.%d`).text().trim();
      log.info(`version is ${version}`);
      return { version };
    }),
    step('sign', async ({ log, secrets }) => {
      log.info(`signed with ${await secrets.get('SIGNING_KEY')}`);
    }),
  ],
});

const test = job('test', {
  runsOn: 'linux',
  needs: [build],
  matrix: ['unit', 'integration'],
  steps: [
    step('run', async ({ $, matrix, jobOutputs }) => {
      const { version } = jobOutputs(build).version;
      await $`echo "${matrix.value} tests of ${version} pass"`;
      return { passed: true };
    }),
  ],
});

const release = job('release', {
  runsOn: 'linux',
  needs: [test],
  steps: [
    step('publish', async ({ log, needs }) => {
      log.info(`published after ${needs.test.map((t) => `${t.name}: ${t.status}`).join(', ')}`);
    }),
  ],
});

export default workflow('hello', {
  on: push({ branches: 'main' }),
  jobs: [build, test, release],
});
