(function () {
  var source = document.getElementById('data'), tip = document.getElementById('tip');
  var picture = document.querySelector('svg.timeline[data-left]');
  if (!source || !tip || !picture) return;
  var run = JSON.parse(source.textContent), probe = picture.querySelector('.probe'), hair = picture.querySelector('.hair');
  var left = +picture.dataset.left, right = +picture.dataset.right, total = run.width * run.buckets.length;
  function span(us) {
    return us < 1000 ? us + ' µs' : us < 1e6 ? (us / 1000).toFixed(us < 1e4 ? 1 : 0) + ' ms' : (us / 1e6).toFixed(2) + ' s';
  }
  function clock(us) {
    var seconds = us / 1e6, minutes = Math.floor(seconds / 60), rest = (seconds % 60).toFixed(1);
    return minutes + ':' + (rest.length < 4 ? '0' : '') + rest;
  }
  function show(event) {
    var box = picture.getBoundingClientRect();
    var x = (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width;
    var at = Math.max(0, Math.min(1, (x - left) / (right - left))) * total;
    var index = Math.min(run.buckets.length - 1, Math.floor(at / run.width)), bucket = run.buckets[index];
    var from = index * run.width, until = from + run.width, leader = null, lines = [clock(from)];
    run.leaders.forEach(function (led) { if (led[0] <= at) leader = led[1]; });
    lines.push(Math.round(bucket[0] * 1e6 / run.width) + ' answered/s, ' + bucket[1] + ' refused, ' + bucket[2] + ' unknown');
    if (bucket[0]) lines.push('p50 ' + span(bucket[3]) + ', p99 ' + span(bucket[4]) + ', max ' + span(bucket[5]));
    if (run.leaders.length) lines.push(leader ? leader + ' leads' : 'nobody leads');
    run.faults.forEach(function (fault) {
      if (fault[0] < until && from < (fault[1] === null ? total : fault[1])) lines.push('• ' + fault[2]);
    });
    tip.textContent = lines.slice(0, 14).join('\n');
    tip.hidden = false;
    var room = window.innerWidth - tip.offsetWidth - 16;
    tip.style.left = Math.max(8, Math.min(event.clientX + 16, room)) + 'px';
    tip.style.top = Math.max(8, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8)) + 'px';
    hair.setAttribute('x1', x); hair.setAttribute('x2', x); hair.setAttribute('visibility', 'visible');
  }
  function hide() { tip.hidden = true; hair.setAttribute('visibility', 'hidden'); }
  probe.addEventListener('pointermove', show);
  probe.addEventListener('pointerdown', show);
  probe.addEventListener('pointerleave', hide);
})();
