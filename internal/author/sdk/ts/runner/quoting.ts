// The script of a command. A value in a template never becomes part of the command's text: it is put into a shell variable
// and the text refers to that, so no value can be read as a command, whatever quotes stand around it.

import { bytesOf, utf8Decode } from '../web/bytes';

/** What a command printed, as a value of another one: without the end of its last line. */
export abstract class Printed {
  abstract readonly stdout: string;
}

/** A script for the shell, and how it is shown to people. */
export interface Command {
  script: string;
  shown: string;
}

/** Makes the script of a template: literal parts as they are, values as variables. */
export function compose(parts: readonly string[], values: readonly unknown[]): Command {
  const quotes = new Quotes();
  const variables: string[] = [];
  let body = '', shown = '';
  parts.forEach((part, i) => {
    body += part;
    shown += part;
    quotes.read(part);
    if (i >= values.length) return;
    const texts = textsOf(values[i], i + 1);
    const names = texts.map((text) => {
      variables.push(`__k${variables.length}=${quote(text)}`);
      return `\${__k${variables.length - 1}}`;
    });
    body += quotes.embed(names);
    shown += texts.map((t) => (/^[\w/.:=@%+,-]+$/.test(t) ? t : quote(t))).join(' ');
  });
  const head = variables.length ? `${variables.join(';')};` : '';
  // The command begins on a line of its own, so that a comment or a here-document in it stays what it is.
  return { script: `${head}\n${body}`, shown: firstLine(shown.trim()) };
}

function firstLine(text: string): string {
  const line = text.split('\n', 1)[0];
  return line.length > 200 || line.length < text.length ? `${line.slice(0, 200)} …` : line;
}

/** The texts that a value stands for. Whatever has no obvious text is refused rather than guessed. */
function textsOf(value: unknown, position: number): string[] {
  if (Array.isArray(value)) return value.flatMap((one) => textsOf(one, position));
  if (value instanceof Printed) return [checked(value.stdout.replace(/\r?\n$/, ''), position)];
  switch (typeof value) {
    case 'string': return [checked(value, position)];
    case 'number': case 'boolean': case 'bigint': return [String(value)];
    case 'object':
      return [checked(textOf(value, position), position)];
  }
  throw refusal(value, position);
}

// textOf is the text of an object, the same on every host.
function textOf(value: any, position: number): string {
  const bytes = bytesOf(value);
  if (bytes !== undefined) return utf8Decode(bytes).text;
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  if (value === null || value.toString === Object.prototype.toString) throw refusal(value, position);
  return String(value);
}

function refusal(value: unknown, position: number): TypeError {
  return new TypeError(`value ${position} of a command is ${kind(value)}; text, a number, a boolean or a list of them is needed`);
}

function kind(value: unknown): string {
  if (value === null || typeof value !== 'object') return value === null ? 'null' : typeof value;
  const name = value.constructor?.name;
  return !name || name === 'Object' ? 'an object' : `an object (${name})`;
}

function checked(text: string, position: number): string {
  if (text.includes('\0')) throw new TypeError(`value ${position} of a command holds a NUL character, which no argument can`);
  return text;
}

/** Quotes text for every POSIX shell. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Follows the author's own quotes through the literal parts, so that a value in them is written to fit. A wrong guess
 * (in a here-document, say) costs a stray quote in the output and never lets a value be run.
 */
class Quotes {
  private stack: ('"' | "'" | '(')[] = [];
  private escaped = false;
  private comment = false;
  private previous = '';

  read(part: string): void {
    for (const c of part) {
      this.step(c);
      this.previous = c;
    }
  }

  private step(c: string): void {
    const top = this.stack[this.stack.length - 1];
    if (this.escaped) { this.escaped = false; return; }
    if (this.comment) { this.comment = c !== '\n'; return; }
    if (top === "'") { if (c === "'") this.stack.pop(); return; }
    if (c === '\\') this.escaped = true;
    else if (c === '"') { if (top === '"') this.stack.pop(); else this.stack.push('"'); }
    else if (c === '(' && this.previous === '$') this.stack.push('(');
    else if (top === '"') return;
    else if (c === "'") this.stack.push("'");
    else if (c === ')' && top === '(') this.stack.pop();
    else if (c === '#' && (this.previous === '' || /[\s;&|(]/.test(this.previous))) this.comment = true;
  }

  embed(names: string[]): string {
    this.escaped = false;
    this.previous = 'x';
    switch (this.stack[this.stack.length - 1]) {
      case '"': return names.join(' ');
      case "'": return `'"${names.join(' ')}"'`;
    }
    return names.map((n) => `"${n}"`).join(' ');
  }
}
