#!/usr/bin/env python3
"""Licences and SBOM of the tarball: parts.py LIBRARIES FETCHED OUT VERSION

Copies the text of each licence to OUT/licences/NAME and writes OUT/sbom.spdx.json (SPDX 2.3) of the parts that
parts.tsv lists. SOURCE_DATE_EPOCH is the document's time.
"""
import datetime
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.join(HERE, '../page/node_modules')


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def part(source, libraries, fetched):
    """Version, supplier and licence's file; None: the program does without it on this machine."""
    kind, _, name = source.rpartition(':')
    if kind == 'page':
        folder = os.path.join(PAGE, name)
        if not os.path.exists(folder): # as tools/make/page.mk: Debian's file, or none
            return part('libjs-highlight.js', libraries, fetched) if 'highlight' in name else None
        with open(os.path.join(folder, 'package.json'), encoding='utf-8') as f:
            return json.load(f)['version'], 'Organization: npm', os.path.join(folder, 'LICENSE')
    if kind == 'source':
        dsc = [f for f in os.listdir(fetched) if re.fullmatch(re.escape(name) + r'_.*\.dsc', f)]
        assert len(dsc) == 1, f'{name}: {dsc}'
        return dsc[0][len(name) + 1:-4], 'Organization: Debian', f'{libraries}/source/{name}/debian/copyright'
    if kind == 'libc':
        deb = [f for f in os.listdir(fetched) if f.startswith(name + '_')]
        return output('dpkg-deb', '-f', f'{fetched}/{deb[0]}', 'Version'), 'Organization: Debian', \
            f'{libraries}/libc/usr/share/doc/{name}/copyright'
    if not os.path.exists(f'/usr/share/doc/{name}/copyright'):
        return None
    version = output('dpkg-query', '-W', '-f=${Version}\n', name).split('\n')[0]
    return version, 'Organization: Debian', f'/usr/share/doc/{name}/copyright'


def main():
    libraries, fetched, out, version = sys.argv[1:]
    epoch = int(os.environ['SOURCE_DATE_EPOCH'])
    os.makedirs(f'{out}/licences')

    def entry(name, version, licence, supplier):
        return {'SPDXID': 'SPDXRef-' + re.sub('[^A-Za-z0-9.]+', '-', name).strip('-'), 'name': name,
                'versionInfo': version, 'supplier': supplier, 'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False,
                'licenseConcluded': licence, 'licenseDeclared': licence, 'copyrightText': 'NOASSERTION'}

    packages = [entry('evenkeel', version, 'Apache-2.0', 'NOASSERTION')]
    with open(os.path.join(HERE, 'parts.tsv'), encoding='utf-8') as f:
        rows = [line.rstrip('\n').split('\t') for line in f if not line.startswith('#')]
    for name, source, licence in rows:
        found = part(source, libraries, fetched)
        if not found:
            continue
        packages.append(entry(name, found[0], licence, found[1]))
        shutil.copyfile(found[2], f'{out}/licences/' + packages[-1]['SPDXID'][8:])
        # Debian's files name the long texts by their place.
        with open(found[2], encoding='utf-8', errors='replace') as f:
            for common in re.findall(r'/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])', f.read()):
                if os.path.isfile(f'/usr/share/common-licenses/{common}'):
                    shutil.copyfile(f'/usr/share/common-licenses/{common}', f'{out}/licences/{common}')
    digest = hashlib.sha256(json.dumps(packages).encode()).hexdigest()
    document = {
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': f'evenkeel-{version}',
        'documentNamespace': f'https://spdx.org/spdxdocs/evenkeel-{version}-{digest}',
        'creationInfo': {'created': datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ'),
                         'creators': ['Tool: evenkeel tools/dist/parts.py']},
        'packages': packages,
        'relationships': [{'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': 'SPDXRef-evenkeel'}] +
        [{'spdxElementId': 'SPDXRef-evenkeel', 'relationshipType': 'STATIC_LINK' if not p['SPDXID'].endswith(('marked', 'highlight.js', 'Temml')) else 'CONTAINS',
          'relatedSpdxElement': p['SPDXID']} for p in packages[1:]]}
    with open(f'{out}/sbom.spdx.json', 'w', encoding='utf-8') as f:
        json.dump(document, f, indent=1)
        f.write('\n')


main()
