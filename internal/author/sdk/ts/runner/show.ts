// Values as logs show them.

/** A value as a person reads it: text as it is, errors with their name, the rest as JSON. It never throws. */
export function show(value: any): string {
  if (typeof value === 'string') return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (value === null || typeof value !== 'object') return typeof value === 'bigint' ? `${value}n` : String(value);
  try {
    const seen = new Set<object>();
    const text = JSON.stringify(value, (_, v) => {
      if (typeof v === 'bigint') return `${v}n`;
      if (v instanceof Map) return { map: [...v] };
      if (v instanceof Set) return { set: [...v] };
      if (v === null || typeof v !== 'object') return v;
      if (seen.has(v)) return '[seen above]';
      seen.add(v);
      return v;
    });
    return text ?? String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

/** Values side by side. A text in front may hold %s, %d, %i, %f, %j, %o and %O in place of those after it. */
export function format(values: any[]): string {
  const [first, ...rest] = values;
  if (typeof first !== 'string' || rest.length === 0) return values.map(show).join(' ');
  const text = first.replace(/%([sdifjoO%])/g, (mark, kind) => {
    if (kind === '%') return '%';
    return rest.length === 0 ? mark : formatted(kind, rest.shift());
  });
  return [text, ...rest.map(show)].join(' ');
}

function formatted(kind: string, value: any): string {
  if (kind === 'd' || kind === 'f') return String(typeof value === 'bigint' ? value : Number(value));
  return kind === 'i' ? String(parseInt(value, 10)) : show(value);
}
