// boot prepares a VM: it takes the one native function away from the global object and gives Go four functions of its
// own. The built-ins it needs are kept here, so that a script which replaces them breaks itself and not the host.
(function (g) {
  "use strict";
  const raw = g.__kiciNative;
  delete g.__kiciNative;
  const parse = JSON.parse, stringify = JSON.stringify, apply = Reflect.apply, text = String;
  const waiting = Object.create(null);
  let last = 0;

  const describe = (e) => {
    try {
      if (e !== null && typeof e === "object" && typeof e.message === "string") {
        return stringify({ name: text(e.name ?? "Error"), message: e.message, stack: text(e.stack ?? "") });
      }
      return stringify({ name: "", message: typeof e === "symbol" ? e.toString() : text(e), stack: "" });
    } catch {
      return stringify({ name: "", message: "a value that cannot be shown was thrown", stack: "" });
    }
  };
  // A reply is "!" and a message, or "=" and the JSON of a value, which is empty for undefined.
  const open = (reply) => {
    if (reply[0] === "!") throw new Error(reply.slice(1));
    return reply.length > 1 ? parse(reply.slice(1)) : undefined;
  };
  const define = (path, value) => {
    const parts = path.split(".");
    const name = parts.pop();
    let at = g;
    for (const part of parts) {
      if (!(part in at)) put(at, part, {});
      at = at[part];
    }
    put(at, name, value);
  };
  const put = (at, name, value) => Object.defineProperty(at, name, { value, writable: true, configurable: true, enumerable: false });

  return {
    host(name, index) {
      define(name, (...args) => open(raw(index, stringify(args), 0)));
    },
    hostAsync(name, index) {
      define(name, (...args) => new Promise((resolve, reject) => {
        const json = stringify(args);
        const id = ++last;
        waiting[id] = [resolve, reject];
        try {
          open(raw(index, json, id));
        } catch (e) {
          delete waiting[id];
          reject(e);
        }
      }));
    },
    settle(id, reply) {
      const [resolve, reject] = waiting[id];
      delete waiting[id];
      try {
        resolve(open(reply));
      } catch (e) {
        reject(e);
      }
    },
    call(path, args) {
      const done = (v) => raw(-1, stringify(v) ?? "", 0);
      const failed = (e) => raw(-2, describe(e), 0);
      let self, f = g;
      try {
        for (const part of path.split(".")) {
          self = f;
          f = f?.[part];
        }
        if (typeof f !== "function") throw new TypeError(path + " is not a function");
        const result = apply(f, self, parse(args));
        if (result === null || typeof result !== "object" || typeof result.then !== "function") {
          done(result);
          return;
        }
        Promise.resolve(result).then(done).catch(failed);
      } catch (e) {
        failed(e);
      }
    },
  };
})(globalThis)
