// What a job asks of the machine that runs it.

import { shown } from './report';

const units: Record<string, number> = { k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 };

/** The bytes of a text such as `512m` or `1.5g`. Throws an Error for any other. */
export function memoryBytes(text: unknown): number {
  const match = typeof text === 'string' ? /^(\d+(?:\.\d+)?)\s*([kmg])$/i.exec(text) : null;
  if (!match) throw new Error(`memory must be like 512m or 2g, not ${shown(text)}`);
  return Math.floor(Number(match[1]) * units[match[2].toLowerCase()]);
}

/** Checks resources and gives them back. */
export function checkResources(resources: any): unknown {
  if (resources === undefined) return undefined;
  only(resources, ['requests', 'limits'], 'resources');
  const { requests, limits } = resources;
  for (const [name, part] of Object.entries({ requests, limits })) if (part !== undefined) checkPart(part, `resources.${name}`);
  if (requests?.cpus > limits?.cpus) throw new Error(`resources.requests.cpus ${requests.cpus} is above its limit ${limits.cpus}`);
  if (requests?.memory && limits?.memory && memoryBytes(requests.memory) > memoryBytes(limits.memory)) {
    throw new Error(`resources.requests.memory ${requests.memory} is above its limit ${limits.memory}`);
  }
  return resources;
}

function checkPart(part: any, name: string): void {
  only(part, ['cpus', 'memory'], name);
  if (part.cpus !== undefined && !(typeof part.cpus === 'number' && part.cpus > 0 && part.cpus <= 256)) throw new Error(`${name}.cpus must be above 0 and at most 256, not ${shown(part.cpus)}`);
  if (part.memory !== undefined) memoryBytes(part.memory);
}

function only(o: any, keys: string[], name: string): void {
  if (o === null || typeof o !== 'object' || Array.isArray(o)) throw new Error(`${name} must be an object`);
  for (const key of Object.keys(o)) if (!keys.includes(key)) throw new Error(`${name} has no field '${key}', only ${keys.join(' and ')}`);
}
