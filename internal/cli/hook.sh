#!/bin/sh
# Tells the kici server about every branch and tag that is pushed to this repository. git runs it as post-receive, with a
# line "old new ref" on stdin for each. It never fails a push: a server that is away is only mentioned.
url=@URL@
base=@BASE@
secret_file=@SECRET_FILE@

secret=$(cat "$secret_file") || { echo "kici: the secret in $secret_file cannot be read" >&2; exit 0; }
[ "${#secret}" -eq 64 ] || { echo "kici: $secret_file must hold 64 hex digits" >&2; exit 0; }

# The name of the repository is its path below the base folder, without .git.
repo=$(cd "$(git rev-parse --git-dir)" && pwd -P)
case $repo in */.git) repo=${repo%/.git} ;; *) repo=${repo%.git} ;; esac
repo=${repo#"$(cd "$base" && pwd -P)"/}

# hex_xor DIGITS N prints bytes given in hex, each XORed with N. text_xor does so for text of lower-case hex digits.
# Both use the shell alone: on a command line every user of the machine would see the secret.
hex_xor() {
  left=$1 out=
  while [ -n "$left" ]; do
    byte=${left%"${left#??}"} left=${left#??}
    n=$((0x$byte ^ $2))
    out="$out\\0$((n / 64))$((n / 8 % 8))$((n % 8))"
  done
  printf %b "$out"
}
text_xor() {
  left=$1 codes=
  while [ -n "$left" ]; do
    c=${left%"${left#?}"} left=${left#?}
    case $c in
      [0-9]) codes="${codes}3$c" ;;
      a) codes="${codes}61" ;; b) codes="${codes}62" ;; c) codes="${codes}63" ;;
      d) codes="${codes}64" ;; e) codes="${codes}65" ;; f) codes="${codes}66" ;;
    esac
  done
  hex_xor "$codes" "$2"
}
sha256() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi | cut -c1-64
}
# The HMAC of stdin under the secret, which is exactly one block long.
signature() {
  inner=$({ text_xor "$secret" 54; cat; } | sha256)
  { text_xor "$secret" 92; hex_xor "$inner" 0; } | sha256
}
json() { tr -d '\000-\037\177' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

main=$(git symbolic-ref --short HEAD 2>/dev/null | json)
who=$(printf %s "${USER:-}" | json)
count=0
while read -r old new ref; do
  case $new in *[!0]*) ;; *) continue ;; esac # a deleted ref starts nothing
  case $ref in refs/heads/* | refs/tags/*) ;; *) continue ;; esac
  count=$((count + 1))
  commit=$(git rev-parse --verify --quiet "$new^{commit}") || continue
  body=$(printf '{"ref":"%s","before":"%s","after":"%s","repository":{"full_name":"%s","default_branch":"%s"},"head_commit":{"id":"%s","message":"%s"},"sender":{"login":"%s"}}' \
    "$(printf %s "$ref" | json)" "$old" "$commit" "$(printf %s "$repo" | json)" "$main" "$commit" \
    "$(git log -1 --format=%s "$commit" | json)" "$who")
  answer=$(printf %s "$body" | curl --silent --show-error --max-time 10 --retry 2 --retry-connrefused \
    --header 'Content-Type: application/json' --header 'X-Event-Type: push' \
    --header "X-Delivery-Id: $commit-$(date +%s)-$$-$count" \
    --header "X-Signature-256: sha256=$(printf %s "$body" | signature)" --data-binary @- "$url" 2>&1)
  case $answer in
    *'"accepted":true'*) echo "kici: told about ${ref#refs/*/}" ;;
    *) echo "kici: not told about ${ref#refs/*/}: $answer" >&2 ;;
  esac
done
exit 0
