#!/bin/sh
# Tells the kici server about every branch and tag that is pushed to this repository. git runs it as post-receive, with a
# line "old new ref" on stdin for each. It never fails a push: a server that is away is only mentioned.
url=@URL@
base=@BASE@
secret_file=@SECRET_FILE@ # an Authorization header: on a command line every user of the machine would see it

[ -r "$secret_file" ] || { echo "kici: the secret in $secret_file cannot be read" >&2; exit 0; }

# The name of the repository is its path below the base folder, without .git.
repo=$(cd "$(git rev-parse --git-dir)" && pwd -P)
case $repo in */.git) repo=${repo%/.git} ;; *) repo=${repo%.git} ;; esac
repo=${repo#"$(cd "$base" && pwd -P)"/}

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
    --header "@$secret_file" --header 'Content-Type: application/json' --header 'X-Event-Type: push' \
    --header "X-Delivery-Id: $commit-$(date +%s)-$$-$count" --data-binary @- "$url" 2>&1)
  case $answer in
    *'"accepted":true'*) echo "kici: told about ${ref#refs/*/}" ;;
    *) echo "kici: not told about ${ref#refs/*/}: $answer" >&2 ;;
  esac
done
exit 0
