// SPDX-License-Identifier: Apache-2.0
// Which lanes there are, one below the other, and where each stands.

const heights = { heading: 20, findings: 28, gaps: 22, service: 32, writer: 24, audit: 22 };

// So many Services show at once, until somebody asks for all.
const fewServices = 8;

// layOut returns the lanes for what the filter picked.
function layOut({ data, places, marks, allServices, findService }) {
  const lanes = [];
  let top = 0;
  const add = lane => { lanes.push({ ...lane, top, height: heights[lane.kind] }); top += heights[lane.kind]; };
  const section = (title, list) => {
    if (list.length === 0) return;
    add({ kind: 'heading', title });
    list.forEach(add);
  };
  if (data.findings.length > 0) add({ kind: 'findings', title: 'Findings' });
  if (data.gaps.length > 0) add({ kind: 'gaps', title: 'Not watched' });
  const services = pickServices(data.services, allServices, findService);
  section(servicesTitle(services, data.services), services.map(service => ({ kind: 'service', title: service.name, service })));
  section('Events by writer', writerLanes(data.events, places));
  section('Audit logs by server', auditLanes(data.marks, marks));
  return { lanes, height: top };
}

// A long list would push all else out of sight, so it is folded: those that lost
// most come first.
function pickServices(services, all, find) {
  if (find !== '') return services.filter(s => s.name.toLowerCase().includes(find.toLowerCase()));
  return all ? services : services.slice(0, fewServices);
}

function servicesTitle(shown, services) {
  const zero = services.filter(s => s.zero).length;
  const lost = zero > 0 ? `, ${number(zero)} lost all` : '';
  return `Backends of Services (${number(shown.length)} of ${number(services.length)}${lost})`;
}

function writerLanes(events, places) {
  const counts = new Map();
  for (const i of places) counts.set(events.manager[i], (counts.get(events.manager[i]) ?? 0) + 1);
  return [...counts].sort(([a, n], [b, m]) => m - n || a - b)
    .map(([manager, count]) => ({ kind: 'writer', title: events.texts[manager] || unknown, manager, count }));
}

function auditLanes(marks, places) {
  const counts = new Map();
  for (const i of places) counts.set(marks.server[i], (counts.get(marks.server[i]) ?? 0) + 1);
  const servers = [...counts.keys()].sort();
  const common = commonFolder(servers).length;
  return servers.map(server => ({ kind: 'audit', title: server.slice(common) || unknown, server, count: counts.get(server) }));
}

// commonFolder is what all paths begin with, up to a slash.
function commonFolder(paths) {
  let common = paths[0]?.slice(0, paths[0].lastIndexOf('/') + 1) ?? '';
  while (!paths.every(path => path.startsWith(common))) common = common.slice(0, common.lastIndexOf('/', common.length - 2) + 1);
  return common;
}

// lanesBetween are those of which a part lies between two heights.
function lanesBetween(lanes, top, bottom) {
  return lanes.filter(lane => lane.top + lane.height > top && lane.top < bottom);
}
