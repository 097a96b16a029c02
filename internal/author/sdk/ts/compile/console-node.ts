// Evaluated before the author's module: whatever that prints while it loads goes to stderr.

import { Console } from 'node:console';

globalThis.console = new Console(process.stderr, process.stderr);

export {};
