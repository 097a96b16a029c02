// While a workflow is compiled it only describes itself: what it prints is not part of the result, and a timer that it
// starts at load would have nothing to wait for. Where the host has neither, both are given here as things without effect.

import '../web/install';

function installQuietHost(scope: any): void {
  const quiet = () => {};
  const methods = [
    'log', 'info', 'warn', 'error', 'debug', 'trace', 'table', 'dir', 'dirxml', 'assert', 'count', 'countReset', 'group', 'groupCollapsed', 'groupEnd',
    'time', 'timeLog', 'timeEnd',
  ];
  scope.console ??= Object.fromEntries(methods.map((name) => [name, quiet]));
  for (const name of ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval']) scope[name] ??= quiet;
}

installQuietHost(globalThis);

export {};
