// The token of the page. It comes in the fragment of the address, which is sent to no server, or is typed in.

const KEY = "isthmus-token";

// Returns the token of the address or of this tab, "" if there is none, and takes it out of the address.
export const takeToken = () => {
  const match = /^#token=([^&]*)/.exec(location.hash);
  if (!match) return sessionStorage.getItem(KEY) ?? "";
  history.replaceState(null, "", location.pathname);
  let token;
  try {
    token = decodeURIComponent(match[1]);
  } catch {
    token = match[1];
  }
  keepToken(token);
  return token;
};

// A reload of the tab finds it again. It ends with the tab.
export const keepToken = token => sessionStorage.setItem(KEY, token);

export const forgetToken = () => sessionStorage.removeItem(KEY);
