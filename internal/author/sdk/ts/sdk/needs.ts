// What a job waits for, and on which ends of those it runs.

/** The statuses each keyword of `when` stands for. */
export const WhenKeywords: Record<string, string[]> = {
  'on-success': ['success'],
  always: ['success', 'failed', 'cancelled', 'skipped', 'timed_out_stale', 'drift_dropped'],
  'on-skip': ['success', 'skipped'],
  'on-failure': ['failed', 'timed_out_stale'],
};

/** The statuses of a `when`: those of its keyword, the list itself, or success. undefined for anything else. */
export function resolveWhen(when: unknown): string[] | undefined {
  if (when === undefined || when === null) return ['success'];
  if (typeof when === 'string') return Object.hasOwn(WhenKeywords, when) ? WhenKeywords[when] : undefined;
  return Array.isArray(when) && when.length > 0 && when.every((s) => typeof s === 'string') ? when : undefined;
}

/** A dependency on every job of a generator's group. */
export function dynamicGroup(group: string, options?: { when?: unknown } | null): { _tag: 'DynamicGroup'; group: string; when?: unknown } {
  return { _tag: 'DynamicGroup', group, ...(options?.when !== undefined && { when: options.when }) };
}
